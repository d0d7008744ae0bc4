"""The model file: exact, whole, and deaf to everything that is not a model."""

from __future__ import annotations

import hashlib
import json
import re
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from densities import from_square, random_density
from hypothesis import given, strategies as st

from ksos import __version__
from ksos.density import SoSDensity, load, read_header, save, square_of
from ksos.exceptions import ModelFormatError
from ksos.ground import resources
from ksos.kernels import KERNELS, Gaussian, Kernel, Laplace, Matern
from ksos.measures import Box, Discrete, Lebesgue, Measure, Normal

PAGE = Path(__file__).resolve().parents[2] / "docs" / "model-file.md"

MODELS: dict[str, tuple[Kernel, Measure | None, int]] = {
    "gaussian": (Gaussian(0.7), None, 2),
    "gaussian per feature": (Gaussian([0.7, 1e-3, 50.0]), Lebesgue(), 3),
    "gaussian, half-infinite box": (Gaussian(0.7), Box([-np.inf, -1.0], [1.0, np.inf]), 2),
    "gaussian, open normal": (Gaussian(1.3), Normal(0.25, 1.75), 2),
    "gaussian, normal": (Gaussian(1.3), Normal([0.1, 0.2], [1.0, 2.0]), 2),
    "laplace": (Laplace(0.3), None, 1),
    "laplace product, box": (Laplace([0.3, 0.1], product=True), Box([-3.0, -3.0], [3.0, 3.0]), 2),
    "matern product": (Matern(1.5, 1 / 3, product=True), None, 2),
    "matern through Bessel": (
        Matern(0.1 + 0.2, 1.0),
        Discrete.quadrature(Box([-3.0, -3.0], [3.0, 3.0]), 6),
        2,
    ),
    "gaussian, nodes": (Gaussian(0.7), Discrete([[-1.0], [0.0], [1.0]]), 1),
    "many features": (Gaussian(40.0), None, 784),
    "many features, small": (Gaussian(1e-3), None, 784),
}


def assert_identical(q: SoSDensity, p: SoSDensity) -> None:
    """Every number the same to the last bit, and so is everything computed with them."""
    assert type(q) is SoSDensity
    assert q.kernel == p.kernel
    assert q.measure == p.measure
    for name in ("support_points", "unit_factor"):
        loaded, original = getattr(square_of(q), name), getattr(square_of(p), name)
        assert loaded.shape == original.shape
        assert loaded.dtype == np.float64
        assert loaded.tobytes() == original.tobytes()
    assert (
        np.float64(square_of(q).log_unit).tobytes() == np.float64(square_of(p).log_unit).tobytes()
    )
    near = np.random.default_rng(7).normal(size=(1000, p.n_features))
    X = np.concatenate([p.support_points, near, 1e3 * near])
    assert np.array_equal(q.pdf(X), p.pdf(X))
    assert np.array_equal(q.logpdf(X), p.logpdf(X))


# --- what was saved comes back ---


@pytest.mark.parametrize("name", MODELS)
def test_load_is_exact(name: str, tmp_path: Path) -> None:
    kernel, measure, d = MODELS[name]
    p = random_density(kernel, measure, d)
    save(p, tmp_path / "model.ksos")
    q = load(tmp_path / "model.ksos")
    assert_identical(q, p)
    save(q, tmp_path / "again.ksos")
    assert (tmp_path / "again.ksos").read_bytes() == (tmp_path / "model.ksos").read_bytes()


@given(
    m=st.integers(1, 6),
    d=st.integers(1, 3),
    k=st.integers(1, 8),
    log_scale=st.floats(-140, 140),
    shift=st.sampled_from([0.0, 1e8, -1e300]),
    seed=st.integers(0, 2**32),
)
def test_load_is_exact_on_any_scale(
    tmp_path_factory: Any, m: int, d: int, k: int, log_scale: float, shift: float, seed: int
) -> None:
    scale, rng = 10.0**log_scale, np.random.default_rng(seed)
    points = shift + scale * rng.normal(size=(m, d))
    p = SoSDensity(
        Gaussian(scale * rng.uniform(0.5, 2.0, size=d)),
        points,
        rng.normal(size=(m, k)),
        normalize=True,
    )
    file = tmp_path_factory.mktemp("any") / "model.ksos"
    save(p, file)
    assert_identical(load(file), p)


def test_signed_zeros_and_subnormal_numbers_survive(tmp_path: Path) -> None:
    base = random_density(Gaussian(1.0), m=4, rank=3)
    F = square_of(base).unit_factor.copy()
    F[0], F[1, 0] = -0.0, 5e-324
    F /= np.sqrt(
        from_square(
            base.kernel, base.support_points, F, square_of(base).log_unit, base.measure
        ).terms.mass()
    )
    p = from_square(base.kernel, base.support_points, F, square_of(base).log_unit, base.measure)
    save(p, tmp_path / "model.ksos")
    assert_identical(load(tmp_path / "model.ksos"), p)


def test_infinite_sides_of_a_box_survive(tmp_path: Path) -> None:
    p = random_density(Gaussian(0.7), d=2)
    low, high = np.full(2, -np.inf), np.full(2, np.inf)
    p = from_square(
        p.kernel, p.support_points, square_of(p).unit_factor, square_of(p).log_unit, Box(low, high)
    )
    save(p, tmp_path / "model.ksos")
    q = load(tmp_path / "model.ksos")
    assert_identical(q, p)
    assert isinstance(q.measure, Box)
    assert np.array_equal(q.measure.low, low)
    assert np.array_equal(q.measure.high, high)


def test_memory_layout_of_the_saved_arrays_does_not_matter(tmp_path: Path) -> None:
    base = random_density(Gaussian(0.7), d=2, m=50, rank=3)
    wide = np.repeat(square_of(base).unit_factor, 2, axis=1)
    for F in (np.asfortranarray(square_of(base).unit_factor), wide[:, ::2]):
        p = from_square(
            base.kernel,
            np.asfortranarray(base.support_points),
            F,
            square_of(base).log_unit,
            base.measure,
        )
        save(p, tmp_path / "model.ksos")
        assert_identical(load(tmp_path / "model.ksos"), p)


class Tuned(Gaussian):
    """A kernel with parameters of every kind: number, array, flag, whole number, word, nothing."""

    name = "tuned"

    def __init__(
        self,
        sigma: Any,
        weights: Any,
        order: int,
        label: str,
        sharp: bool,
        limit: float,
        extra: None = None,
    ) -> None:
        super().__init__(sigma)
        self.rest = {
            "weights": weights,
            "order": order,
            "label": label,
            "sharp": sharp,
            "limit": limit,
            "extra": extra,
        }

    def parameters(self) -> dict[str, Any]:
        return {"sigma": self.sigma.tolist(), **self.rest}


def test_new_kernel_needs_its_table_entry_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = Tuned(0.1, np.arange(6.0).reshape(2, 3), 3, "läuft", True, np.inf)
    p = random_density(kernel, Discrete([[-1.0], [0.5]]))
    with pytest.raises(
        ValueError,
        match=(
            r"cannot be saved: its kernel Tuned\((?s:.*) none of those that a file can name:"
            r" gaussian"
        ),
    ):
        save(p, tmp_path / "model.ksos")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setitem(KERNELS, "tuned", Tuned)
    save(p, tmp_path / "model.ksos")
    loaded = load(tmp_path / "model.ksos").kernel
    assert isinstance(loaded, Tuned)
    assert np.array_equal(loaded.rest.pop("weights"), kernel.rest.pop("weights"))
    assert loaded.rest == kernel.rest
    assert loaded.rest["sharp"] is True


@pytest.mark.parametrize(
    ("entry", "match"), [(2.0, "mass 2"), (0.0, "mass 0"), (np.nan, "NaN"), (np.inf, "infinity")]
)
def test_save_refuses_what_load_would_refuse(entry: float, match: str, tmp_path: Path) -> None:
    p = random_density(Gaussian(1.0))
    F = (
        square_of(p).unit_factor * np.sqrt(entry)
        if np.isfinite(entry)
        else np.full_like(square_of(p).unit_factor, entry)
    )
    save(p, tmp_path / "model.ksos")
    before = (tmp_path / "model.ksos").read_bytes()
    with pytest.raises(ValueError, match=f"this density cannot be saved: .*{match}"):
        save(
            from_square(p.kernel, p.support_points, F, square_of(p).log_unit, p.measure),
            tmp_path / "model.ksos",
        )
    assert (tmp_path / "model.ksos").read_bytes() == before


def test_the_header_alone(tmp_path: Path) -> None:
    file = tmp_path / "model.ksos"
    save(
        random_density(
            Matern(1.5, [0.5, 2.0], product=True),
            Box([-3.0, -3.0], [3.0, np.inf]),
            d=2,
            m=5,
            rank=3,
        ),
        file,
    )
    content = file.read_bytes()
    start = 48 + int.from_bytes(content[8:16], "little")
    header = read_header(str(file))
    assert header == json.loads(content[48:start])
    assert (header["format_version"], header["library_version"]) == (1, __version__)
    assert (header["kernel"]["name"], header["measure"]["name"]) == ("matern", "box")
    assert {entry["name"]: entry["shape"] for entry in header["arrays"]} == {
        "log_unit": [],
        "support_points": [5, 2],
        "unit_factor": [5, 3],
        "kernel.nu": [],
        "kernel.sigma": [2],
        "measure.low": [2],
        "measure.high": [2],
    }
    file.write_bytes(content[:start])  # the arrays are not looked at
    assert read_header(file) == header


def test_the_header_of_what_is_no_model(tmp_path: Path) -> None:
    file = tmp_path / "model.ksos"
    save(random_density(Gaussian(1.0)), file)
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[60] ^= 1
    for other in (
        b"",
        b"x,y\n1,2\n",
        content[:40],
        content[:100],
        bytes(flipped),
        content.replace(b"\r\n", b"\n", 1),
    ):
        file.write_bytes(other)
        with pytest.raises(ModelFormatError, match=re.escape(str(file))):
            read_header(file)
    with pytest.raises(FileNotFoundError) as caught:
        read_header(tmp_path / "none.ksos")
    assert caught.value.filename == str(tmp_path / "none.ksos")


# --- memory ---

SLACK = 16e6  # the constant: blocks of the mass check, the parsed header
LARGE: dict[str, tuple[int, int, int, int]] = {  # m, d, k, nodes
    "many squares": (1200, 2, 1200, 0),
    "many more squares than points": (20, 2, 100_000, 0),
    "many features": (400, 5000, 2, 0),
    "many points": (4000, 40, 1, 0),
    "many nodes": (30, 2, 3, 200_000),
}


@pytest.mark.parametrize("name", LARGE)
def test_loading_takes_the_memory_of_the_file_and_a_constant(name: str, tmp_path: Path) -> None:
    m, d, k, nodes = LARGE[name]
    rng = np.random.default_rng(0)
    measure = Discrete(rng.normal(size=(nodes, d)), np.ones(nodes)) if nodes else Lebesgue()
    p = random_density(Gaussian(np.sqrt(d)), d=d, m=m, rank=k)
    p = SoSDensity(p.kernel, p.support_points, square_of(p).unit_factor, measure, normalize=True)
    save(p, tmp_path / "model.ksos")
    size = (tmp_path / "model.ksos").stat().st_size
    q, peak = traced(lambda: load(tmp_path / "model.ksos"))
    assert np.array_equal(square_of(q).unit_factor, square_of(p).unit_factor)
    assert peak <= size + SLACK


def traced(work: Callable[[], Any]) -> tuple[Any, int]:
    """What ``work`` returns, and the most memory that Python and NumPy held at once during it."""
    tracemalloc.start()
    try:
        return work(), tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_refusing_takes_a_constant(tmp_path: Path) -> None:
    """A sparse file of a terabyte that announces just that many numbers, and forged ones that
    announce more.
    """
    file = tmp_path / "model.ksos"
    save(random_density(Gaussian(1.0), m=2), file)
    content = file.read_bytes()
    start = 48 + int.from_bytes(content[8:16], "little")
    for n in (1 << 37, 1 << 60):
        header = json.loads(content[48:start])
        header["arrays"][1]["shape"] = [n, 1]
        text = json.dumps(header).encode()
        text += b" " * (-(48 + len(text)) % 64)
        with open(file, "wb") as forged:
            forged.write(
                content[:8] + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest() + text
            )
            forged.truncate(1 << 40)

        def refuse() -> None:
            with pytest.raises(ModelFormatError, match=r"cannot have shape|announces"):
                load(file)

        assert traced(refuse)[1] < 1e6


def test_a_model_larger_than_memory_is_refused_before_it_is_read(tmp_path: Path) -> None:
    save(random_density(Gaussian(1.0)), tmp_path / "model.ksos")
    with (
        resources(memory=100.0),
        pytest.raises(
            MemoryError, match=r"the model needs .* GB, but only .* GB are available; load it where"
        ),
    ):
        load(tmp_path / "model.ksos")


# --- the page ---


def test_the_page_reads_a_model_with_numpy_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    snippet = next(block for block in blocks if "from_bytes" in block)
    assert "ksos" not in snippet.replace("model.ksos", "")
    assert len([line for line in snippet.splitlines() if line.strip()]) <= 12
    monkeypatch.chdir(tmp_path)
    for kernel, d in ((Gaussian(0.7), 2), (Gaussian([0.7, 1.5, 2.0]), 3)):
        p = random_density(kernel, d=d)
        save(p, "model.ksos")
        page: dict[str, Any] = {}
        exec(snippet, page)
        X = np.random.default_rng(1).normal(size=(50, d))
        np.testing.assert_allclose(page["pdf"](X), p.pdf(X), rtol=1e-12)
        F = page["arrays"]["unit_factor"] * np.exp(-page["arrays"]["log_unit"] / 2)
        np.testing.assert_array_equal(page["arrays"]["support_points"], p.support_points)
        np.testing.assert_allclose(F, p.factor, rtol=1e-15)
