"""A model file that is damaged, foreign or forged is refused in words: ModelFormatError, and
nothing else happens.
"""

from __future__ import annotations

import io as streams
import json
import os
import pickle
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from densities import random_density
from forging import MAGIC, arrays_of, forge, forge_arrays, refuse, take_apart
from hypothesis import given, strategies as st

from ksos.density import load, save
from ksos.exceptions import ModelFormatError
from ksos.kernels import Gaussian, Laplace
from ksos.measures import Box, Discrete, Normal


@pytest.fixture
def content(tmp_path: Path) -> bytes:
    """A small file: the kernel has a flag and a number, the measure has arrays."""
    save(
        random_density(Laplace([0.5], product=True), Box([-2.0], [np.inf]), m=2, rank=1),
        tmp_path / "small.ksos",
    )
    return (tmp_path / "small.ksos").read_bytes()


# --- damage ---


def test_every_truncation_is_refused(tmp_path: Path, content: bytes) -> None:
    for n in range(len(content)):
        refuse(tmp_path, content[:n])


def test_every_flipped_bit_is_refused(tmp_path: Path, content: bytes) -> None:
    with open(
        tmp_path / "small.ksos", "r+b", buffering=0
    ) as file:  # in place: thousands of new files would take their time
        for i, byte in enumerate(content):
            for flipped in (byte ^ 1 << bit for bit in range(8)):
                file.seek(i)
                file.write(bytes([flipped]))
                with pytest.raises(ModelFormatError):
                    load(tmp_path / "small.ksos")
            file.seek(i)
            file.write(bytes([byte]))
    load(tmp_path / "small.ksos")


def test_text_mode_is_named(tmp_path: Path, content: bytes) -> None:
    for converted in (
        content.replace(b"\r\n", b"\n"),
        content.replace(b"\n", b"\r\n"),
        content.replace(b"\x1a", b""),
    ):
        refuse(tmp_path, converted, "converted as if it were text; .* in binary mode")


class Payload:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def foreign(mark: Path) -> dict[str, bytes]:
    bomb, archive, objects = streams.BytesIO(), streams.BytesIO(), streams.BytesIO()
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("support_points.npy", bytes(1 << 24))
    np.savez(archive, support_points=np.zeros((2, 1)))
    np.save(objects, np.array([Payload(mark)], dtype=object), allow_pickle=True)
    return {
        "empty": b"",
        "zeros": bytes(4096),
        "text": b"x,y\n1,2\n" * 99,
        "json": b'{"format_version": 1}',
        "pickle": pickle.dumps(Payload(mark)),
        "object array": objects.getvalue(),
        "zip bomb": bomb.getvalue(),
        "npz": archive.getvalue(),
        "png": b"\x89PNG\r\n\x1a\n" + bytes(99),
    }


def test_foreign_files_are_refused_and_not_executed(tmp_path: Path, content: bytes) -> None:
    mark = tmp_path / "mark"
    header, data = take_apart(content)
    for other in foreign(mark).values():
        refuse(
            tmp_path,
            other,
            r"is not a model that ksos can read: it begins with .*; expected a whole file as"
            r" SoSDensity\.save wrote it",
        )
        refuse(tmp_path, MAGIC + other)
        if other:
            refuse(tmp_path, content + other, "bytes, where its header announces")
        refuse(tmp_path, forge(header, other))
        if len(other) < 1 << 16:
            refuse(tmp_path, forge(None, data, raw=other))
    assert not mark.exists()
    pickle.loads(pickle.dumps(Payload(mark)))
    assert mark.exists(), "the payload itself must work, or the test says nothing"


# --- right checksums, wrong content ---


def test_hand_made_files_load(tmp_path: Path, content: bytes) -> None:
    """Or the refusals below would say nothing: without a forged part, these files are accepted."""
    header, data = take_apart(content)
    for made in (forge(header, data), forge_arrays(header, arrays_of(content))):
        (tmp_path / "made.ksos").write_bytes(made)
        X = np.linspace(-3.0, 3.0, 9)[:, None]
        assert np.array_equal(
            load(tmp_path / "made.ksos").pdf(X), load(tmp_path / "small.ksos").pdf(X)
        )


HUGE = 10**4000
FORGED_SHAPES: list[Any] = [
    [-2, 1],
    [2, -1],
    [-2, -1],
    [0, 1],
    [2, 0],
    [0],
    [],
    [2],
    [1, 2],
    [2, 2],
    [1, 1],
    [2, 1, 1],
    [3, 1],
    [1] * 99,
    [2, 1] + [1] * 70,
    [True, True],
    [2, True],
    [2.0, 1],
    ["2", 1],
    [None],
    [[2], 1],
    [2, {}],
    "2",
    2,
    None,
    {},
    True,
    [2**31, 2**33],
    [2**32, 2**32],
    [2**62, 4],
    [2**63, 2],
    [2**64 + 2, 1],
    [HUGE, 1],
    [HUGE] * 9,
    [HUGE] * 8,
    [-HUGE, -1],
]


@pytest.mark.parametrize("shape", FORGED_SHAPES, ids=lambda shape: repr(shape)[:30])
@pytest.mark.parametrize("index", range(3), ids=["log_unit", "support_points", "unit_factor"])
def test_forged_shapes(index: int, shape: Any, tmp_path: Path, content: bytes) -> None:
    header, data = take_apart(content)
    if repr(header["arrays"][index]["shape"]) != repr(shape):
        header["arrays"][index]["shape"] = shape
        refuse(tmp_path, forge(header, data))


FORGED_HEADERS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "newer": lambda h: h | {"format_version": 3},
    "no version": lambda h: {key: value for key, value in h.items() if key != "format_version"},
    "library version missing": lambda h: {
        key: value for key, value in h.items() if key != "library_version"
    },
    "an escape in the library version": lambda h: (
        h | {"library_version": "1\x1b]0;owned\x07\x1b[2J"}
    ),
    "a line in the library version": lambda h: h | {"library_version": "1\nmass 1"},
    "a long library version": lambda h: h | {"library_version": "1" * 10_000},
    "no arrays": lambda h: h | {"arrays": []},
    "arrays by name": lambda h: (
        h | {"arrays": {entry["name"]: entry["shape"] for entry in h["arrays"]}}
    ),
    "array twice": lambda h: h | {"arrays": [h["arrays"][0], *h["arrays"]]},
    "array with type": lambda h: h | {"arrays": [entry | {"dtype": "O"} for entry in h["arrays"]]},
    "array without a name": lambda h: (
        h | {"arrays": [{"shape": entry["shape"]} for entry in h["arrays"]]}
    ),
    "names that are numbers": lambda h: (
        h | {"arrays": [entry | {"name": i} for i, entry in enumerate(h["arrays"])]}
    ),
    "unknown names": lambda h: (
        h | {"arrays": [entry | {"name": entry["name"] + "!"} for entry in h["arrays"]]}
    ),
    "arrays in another order": lambda h: h | {"arrays": h["arrays"][::-1]},
    "extra field": lambda h: h | {"comment": "hello"},
    "unknown kernel": lambda h: (
        h | {"kernel": {"name": "os.system", "parameters": h["kernel"]["parameters"]}}
    ),
    "unknown measure": lambda h: h | {"measure": {"name": "counting", "parameters": {}}},
    "other measure": lambda h: h | {"measure": {"name": "normal", "parameters": {}}},
    "measure without arrays": lambda h: h | {"measure": {"name": "lebesgue", "parameters": {}}},
    "kernel extra field": lambda h: h | {"kernel": h["kernel"] | {"module": "os"}},
    "kernel without flag": lambda h: h | {"kernel": {"name": "laplace", "parameters": {}}},
    "list": lambda h: [h],
    "word": lambda h: "header",
    "nothing": lambda h: None,
    **{
        f"version {value!r:.20}": lambda h, value=value: h | {"format_version": value}
        for value in (0, -1, True, "1", None, [1], HUGE)
    },
    **{
        f"kernel {value!r:.20}": lambda h, value=value: h | {"kernel": value}
        for value in ("laplace", None, 1, [], {})
    },
    **{
        f"kernel name {value!r:.20}": lambda h, value=value: (
            h | {"kernel": h["kernel"] | {"name": value}}
        )
        for value in (None, 1, [], {}, "\ud800")
    },
    **{
        f"kernel parameters {value!r:.30}": lambda h, value=value: (
            h | {"kernel": {"name": "laplace", "parameters": value}}
        )
        for value in (
            None,
            [],
            "product",
            {"product": 1},
            {"product": "yes"},
            {"product": None},
            {"product": [True]},
            {"product": HUGE},
            {"product": True, "sigma": 1},
            {"product": True, "self": 1},
            {"product": True, "__class__": "os"},
        )
    },
}


@pytest.mark.parametrize("name", FORGED_HEADERS)
def test_forged_headers(name: str, tmp_path: Path, content: bytes) -> None:
    header, data = take_apart(content)
    refuse(tmp_path, forge(FORGED_HEADERS[name](header), data))


@pytest.mark.parametrize("kind", ["lebesgue", "discrete"])
def test_a_file_cannot_keep_its_reader_busy(kind: str, tmp_path: Path, content: bytes) -> None:
    """A few megabytes of support points and nodes, whose mass would take minutes to add up."""
    header, m = take_apart(content)[0], 60_000
    header |= {
        "kernel": {"name": "gaussian", "parameters": {}},
        "measure": {"name": kind, "parameters": {}},
    }
    arrays = {
        "log_unit": 0.0,
        "support_points": np.zeros((m, 1)),
        "unit_factor": np.ones((m, 1)),
        "kernel.sigma": 1.0,
    }
    if kind == "discrete":
        arrays |= {"measure.points": np.zeros((m, 1)), "measure.weights": np.ones(m)}
    began = time.perf_counter()
    refuse(
        tmp_path,
        forge_arrays(header, arrays),
        r"its mass, of 60000 support points at 60000 places, would take .* steps to verify",
    )
    assert time.perf_counter() - began < 5.0


def test_messages_say_what_came(tmp_path: Path, content: bytes) -> None:
    for forged, match in (
        (
            {"kernel": {"name": "laplace", "parameters": {"product": [True]}}},
            "its field kernel is|product must be",
        ),
        (
            {"kernel": {"name": "sobolev", "parameters": {}}},
            "kernel is 'sobolev', where one of gaussian, laplace, matern",
        ),
        (
            {"measure": {"name": "counting", "parameters": {}}},
            "measure is 'counting', where one of lebesgue, box, normal, gaussian_mixture, discrete",
        ),
        (
            {"arrays": [{"name": "log_unit", "shape": [1] * 9}]},
            r"array 'log_unit' cannot have shape \[1, 1, 1",
        ),
        (
            {"arrays": []},
            "arrays lack log_unit, support_points, unit_factor|bytes, where its header announces",
        ),
    ):
        header, data = take_apart(content)
        refuse(tmp_path, forge(header | forged, data), match)


def test_newer_version_names_the_remedy(tmp_path: Path, content: bytes) -> None:
    header, data = take_apart(content)
    newer = {"format_version": 7, "library_version": "9.1", "anything": "else"}
    refuse(
        tmp_path,
        forge(newer, data),
        r"format version 7, written by ksos '9\.1'; this ksos reads versions up to 5: update ksos",
    )
    damaged = forge(header | {"format_version": 7}, data).replace(
        b'"format_version": 7', b'"format_version": 5'
    )
    refuse(tmp_path, damaged, "checksum of its header")


FORGED_TEXTS: dict[str, bytes] = {
    "not UTF-8": b"\xff\xfe{}",
    "UTF-16": json.dumps({"format_version": 1}).encode("utf-16"),
    "byte-order mark": b'\xef\xbb\xbf{"format_version": 1}',
    "blank": b" ",
    "deep list": b"[" * 60000,
    "deep object": b'{"a":' * 12000,
    "deep and closed": b"[" * 30000 + b"]" * 30000,
    "number too long": b'{"format_version": ' + b"9" * 60000 + b"}",
    "twice": b'{"format_version": 1, "format_version": 1}',
    "two objects": b"{} {}",
    "wide": b"[" + b"[]," * 20000 + b"[]]",
}


@pytest.mark.parametrize("name", FORGED_TEXTS)
def test_forged_texts(name: str, tmp_path: Path, content: bytes) -> None:
    refuse(tmp_path, forge(None, take_apart(content)[1], raw=FORGED_TEXTS[name]))


@pytest.mark.parametrize("number", [b"1.0", b"1e999", b"NaN", b"Infinity", b"-Infinity"])
def test_header_with_real_numbers(number: bytes, tmp_path: Path, content: bytes) -> None:
    header, data = take_apart(content)
    header["library_version"] = "1"
    text = json.dumps(header).encode()
    for place in (
        b'"format_version": 1',
        b'"product": true',
        b'"shape": [2, 1',
        b'"library_version": "1"',
    ):
        assert place in text
        refuse(
            tmp_path,
            forge(None, data, raw=text.replace(place, place.rpartition(b" ")[0] + b" " + number)),
        )


def test_duplicate_field_deep_inside(tmp_path: Path, content: bytes) -> None:
    header, data = take_apart(content)
    text = json.dumps(header).encode()
    refuse(
        tmp_path,
        forge(
            None, data, raw=text.replace(b'"product": true', b'"product": true, "product": true')
        ),
        "a field twice",
    )


@pytest.mark.parametrize("length", [0, 1, 15, 17, 1 << 16 | 16, 1 << 40, (1 << 64) - 48])
def test_header_length(length: int, tmp_path: Path, content: bytes) -> None:
    refuse(
        tmp_path,
        content[:8] + length.to_bytes(8, "little") + content[16:],
        f"header of {length} bytes",
    )


def test_header_limit_is_kept(tmp_path: Path, content: bytes) -> None:
    header, data = take_apart(content)
    text = json.dumps(header).encode() + b" " * (1 << 16)
    refuse(tmp_path, forge(None, data, raw=text), "which no model has")


NAN, INF = float("nan"), float("inf")
FORGED_ARRAYS: dict[str, dict[str, Any]] = {
    "mass 1 + 2e-6": {"unit_factor": lambda F: F * (1 + 1e-6)},
    "mass 1 - 2e-6": {"unit_factor": lambda F: F * (1 - 1e-6)},
    "no mass": {"unit_factor": lambda F: 0 * F},
    "infinite mass": {"unit_factor": lambda F: 1e200 * F},
    "another unit": {"log_unit": lambda u: u + 1.0},
    "unit out of range": {"log_unit": lambda u: u - 1e308},
    **{
        f"{name} {bad}": {
            name: lambda a, bad=bad: np.where(
                np.arange(a.size).reshape(a.shape) == a.size - 1, bad, a
            )
        }
        for name in ("log_unit", "support_points", "unit_factor", "kernel.sigma", "measure.low")
        for bad in (NAN, INF)
    },
    "points far away": {"support_points": lambda X: X + 1e308},
    "points too far apart": {"support_points": lambda X: np.array([[-1.7e308], [1.7e308]])},
    "vector of points": {"support_points": lambda X: X[:, 0]},
    "vector of factors": {"unit_factor": lambda F: F[:, 0]},
    "factor of other length": {"unit_factor": lambda F: np.tile(F, (2, 1))},
    "unit as vector": {"log_unit": lambda u: u.reshape(1)},
    "bandwidth as matrix": {"kernel.sigma": lambda s: s.reshape(1, 1)},
    "bandwidths of another dimension": {"kernel.sigma": lambda s: np.tile(s, 2)},
    "negative bandwidth": {"kernel.sigma": lambda s: -s},
    "tiny bandwidth": {"kernel.sigma": lambda s: s * 1e-200},
    "box of another dimension": {
        "measure.low": lambda a: np.tile(a, 2),
        "measure.high": lambda a: np.tile(a, 2),
    },
    "box sides of other lengths": {"measure.low": lambda a: np.tile(a, 2)},
    "box inside out": {
        "measure.low": lambda a: a + 100.0,
        "measure.high": lambda a: np.zeros_like(a),
    },
    "box elsewhere": {"measure.low": lambda a: a + 1e6},
    "box without a side": {"measure.low": None},
    "kernel without bandwidth": {"kernel.sigma": None},
    "no factor": {"unit_factor": None},
    "extra array": {"comment": lambda _: np.zeros(3)},
    "extra kernel array": {"kernel.nu": lambda _: np.ones(())},
    "kernel array for a flag": {"kernel.product": lambda _: np.ones(())},
    "kernel array without name": {"kernel.": lambda _: np.ones(())},
}


@pytest.mark.parametrize("name", FORGED_ARRAYS)
def test_forged_arrays(name: str, tmp_path: Path, content: bytes) -> None:
    arrays: dict[str, Any] = arrays_of(content)
    for key, change in FORGED_ARRAYS[name].items():
        value = arrays.pop(key, np.zeros(0))
        if change is not None:
            arrays[key] = change(value)
    refuse(tmp_path, forge_arrays(take_apart(content)[0], arrays))


def test_mass_within_tolerance_is_accepted(tmp_path: Path, content: bytes) -> None:
    arrays = arrays_of(content)
    arrays["unit_factor"] *= 1 + 4e-7
    (tmp_path / "model.ksos").write_bytes(forge_arrays(take_apart(content)[0], arrays))
    assert load(tmp_path / "model.ksos").terms.mass() == pytest.approx(1 + 8e-7, abs=1e-9)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": [1.0, -1.0]},
        {"weights": [1.0, 0.0]},
        {"weights": [1.0]},
        {"weights": [NAN, 1.0]},
        {"points": [0.0, 1.0]},
        {"points": [[0.0, 1.0]] * 2},
    ],
    ids=repr,
)
def test_forged_nodes(change: dict[str, Any], tmp_path: Path) -> None:
    save(
        random_density(Gaussian(1.0), Discrete([[0.0], [1.0]], [0.5, 0.5]), m=2),
        tmp_path / "nodes.ksos",
    )
    content = (tmp_path / "nodes.ksos").read_bytes()
    arrays: dict[str, Any] = arrays_of(content) | {
        f"measure.{name}": value for name, value in change.items()
    }
    refuse(tmp_path, forge_arrays(take_apart(content)[0], arrays))


def test_defaults_are_not_filled_in(tmp_path: Path) -> None:
    save(random_density(Gaussian(1.0), Normal(0.0, 1.0)), tmp_path / "model.ksos")
    content = (tmp_path / "model.ksos").read_bytes()
    for name in ("kernel.sigma", "measure.mean", "measure.scale"):
        arrays = arrays_of(content)
        del arrays[name]
        refuse(
            tmp_path,
            forge_arrays(take_apart(content)[0], arrays),
            r"its field arrays is .*, where its density has .*",
        )


@pytest.mark.parametrize("sigma", [1, True, "1.0", None, HUGE], ids=lambda sigma: repr(sigma)[:9])
def test_real_parameters_belong_in_the_arrays(sigma: Any, tmp_path: Path) -> None:
    save(random_density(Gaussian(1.0)), tmp_path / "model.ksos")
    header, _ = take_apart((tmp_path / "model.ksos").read_bytes())
    header["kernel"]["parameters"]["sigma"] = sigma
    arrays = arrays_of((tmp_path / "model.ksos").read_bytes())
    del arrays["kernel.sigma"]
    refuse(tmp_path, forge_arrays(header, arrays))


def test_kernel_without_closed_form(tmp_path: Path) -> None:
    save(random_density(Laplace(0.5, product=True), d=2), tmp_path / "model.ksos")
    header, data = take_apart((tmp_path / "model.ksos").read_bytes())
    header["kernel"]["parameters"]["product"] = False
    refuse(tmp_path, forge(header, data), "product=True")


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["name", "laplace", "box", "log_unit"]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["name", "parameters", "shape", "x"]), inner, max_size=4)
    ),
    max_leaves=8,
)


@given(value=JSON, place=st.integers(0, 10**6), drop=st.booleans())
def test_any_other_header_is_refused(
    tmp_path_factory: Any, value: Any, place: int, drop: bool
) -> None:
    """Any one node of the header's tree, replaced or dropped."""
    folder = tmp_path_factory.mktemp("any")
    save(
        random_density(
            Laplace([0.5, 0.6], product=True), Box([-2.0, -2.0], [2.0, 2.0]), d=2, m=3, rank=1
        ),
        folder / "model.ksos",
    )
    header, data = take_apart((folder / "model.ksos").read_bytes())
    nodes: list[tuple[Any, Any]] = []
    pending: list[Any] = [header]
    while pending:
        node = pending.pop()
        keys = (
            list(node)
            if isinstance(node, dict)
            else range(len(node))
            if isinstance(node, list)
            else []
        )
        nodes += [(node, key) for key in keys if key not in ("sha256", "library_version")]
        pending += [node[key] for key in keys]
    owner, key = nodes[place % len(nodes)]
    if not drop and json.dumps(owner[key]) == json.dumps(value):
        return
    if drop:
        del owner[key]
    else:
        owner[key] = value
    refuse(folder, forge(header, data))
