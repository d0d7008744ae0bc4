"""The model file: densities and mixtures as numbers, never code; versioned, checksummed, written
whole. docs/model-file.md defines it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from ksos._version import __version__
from ksos.density.corrected import Corrected
from ksos.density.density import SoSDensity, from_terms
from ksos.density.normals import Interval
from ksos.density.square import Square
from ksos.density.terms import Term, Terms, as_term, joint_of
from ksos.exceptions import ModelFormatError
from ksos.ground.arrays import quiet, to_numpy
from ksos.ground.files import replace_whole
from ksos.ground.memory import FLOAT_BYTES, require_memory
from ksos.kernels import KERNELS
from ksos.measures import MEASURES

__all__ = ["load", "read_header", "save"]

_MAGIC = b"\x89KSOS\r\n\x1a"  # not text, and no longer itself once line endings have been converted
_CONDITIONAL_MAGIC = b"\x89KSOC"  # another kind of file, which holds more than a density
# 1: a density; 2: the constant of a density, mixtures; 3: names of features; 4: parts given an
# interval
_FORMAT_VERSION = 4
_PREFIX_BYTES = 48  # the magic, the header's length, the header's SHA-256
_ALIGNMENT = 64
_HEADER_LIMIT = 1 << 16  # bounds what parsing can cost before anything is known to be true
_FLOATS = np.dtype("<f8")
_MOST_DIMENSIONS, _MASS_TOLERANCE, _LONGEST_VERSION, _LONGEST_NAME = 8, 1e-6, 80, 1000
_KERNEL_VALUE, _MOST_WORK = (
    20,
    2e10,
)  # steps of an exponential; what a file may make its reader do: some ten seconds
_OWN_ARRAYS, _CONSTANT, _INTERVAL = (
    ("log_unit", "support_points", "unit_factor"),
    "unit_constant",
    "interval",
)
_COMMON_KEYS = {"format_version", "library_version", "measure", "arrays", "sha256"}
_TABLES: dict[str, Mapping[str, type[Any]]] = {"kernel": KERNELS, "measure": MEASURES}

Words = dict[str, "bool | int | str | None"]
Arrays = dict[str, np.ndarray]


def save(density: SoSDensity, path: str | os.PathLike[str]) -> None:
    """Write ``density`` to the file ``path``; at every moment the old file or the new one is there,
    whole.

    It raises ValueError if :func:`load` would refuse the file: a kernel or measure of the user's
    own, or a density that is not one; and OSError if the file cannot be written; then the old one
    is untouched and nothing else is left behind.
    """
    header, arrays = _describe(density)
    text = json.dumps(header).encode()
    text += b" " * (-(_PREFIX_BYTES + len(text)) % _ALIGNMENT)
    if len(text) > _HEADER_LIMIT:
        raise ValueError(
            f"the header of a file may have {_HEADER_LIMIT} bytes, but that of this one would have"
            f" {len(text)}: save the components of a mixture with many parts by themselves, and"
            " give features shorter names with p.with_feature_names([…])"
        )
    try:
        _assemble(_parse(text), dict(arrays))  # as load will
    except ValueError as error:
        raise ValueError(f"this density cannot be saved: {error}") from None
    prefix = _MAGIC + len(text).to_bytes(8, "little") + hashlib.sha256(text).digest()
    replace_whole(path, [prefix, text, *(_bytes_of(array) for array in arrays.values())])


def load(path: str | os.PathLike[str]) -> SoSDensity:
    """The density or mixture in the file ``path``, bit for bit as it was saved.

    Nothing in the file is executed, and nothing is allocated that the file's own length does not
    cover. It raises ModelFormatError for every file that is not a whole, undamaged model of a known
    version, and OSError if the file cannot be read.
    """
    with _opened(path) as file:
        header, data_start = _header_and_its_end(file)
        return _assemble(header, _read_arrays(file, header, data_start))


def read_header(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the file ``path`` says of itself before its numbers, in the fields that
    docs/model-file.md lists.

    Only the header is read and its checksum verified: whether the arrays are there and make a
    density, :func:`load` finds out. It raises ModelFormatError for every file that does not begin
    as a model of a known version, and OSError if the file cannot be read.
    """
    with _opened(path) as file:
        return _header_and_its_end(file)[0]


@contextlib.contextmanager
def _opened(path: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """The file, open to be read; whatever is wrong with its content becomes a ModelFormatError that
    names it.
    """
    with open(os.fspath(path), "rb") as file:
        try:
            yield file
        except ModelFormatError as error:
            raise ModelFormatError(f"{os.fsdecode(path)}: {error}") from None
        except (ValueError, TypeError, ArithmeticError) as error:
            raise ModelFormatError(
                f"{os.fsdecode(path)} is not a model that ksos can read: {error}; expected a whole"
                " file as SoSDensity.save wrote it: copy it again from its source, or save the"
                " model anew"
            ) from None


# --- a density as a header and arrays ---


def _describe(density: SoSDensity) -> tuple[dict[str, Any], Arrays]:
    """What the file says of ``density``: its header, and its arrays in their order."""
    header: dict[str, Any] = {"format_version": 1, "library_version": __version__}
    terms, names = density.terms.on_host, density.feature_names
    if terms.own is not None and _is_whole(terms.own):
        square = joint_of(terms.own)
        entries, arrays = _describe_square(square, "")
        header["format_version"] = 1 if square.unit_constant is None else 2
        header |= entries
    else:
        entry, arrays = _describe_role("measure", terms.measure, "")
        header |= {"format_version": 2, "measure": entry, "parts": []}
        arrays["weights"] = _as_floats([weight for weight, _ in terms.weighted])
        for number, (_, term) in enumerate(terms.weighted):
            entries, own = _describe_square(joint_of(term), f"parts.{number}.")
            corrected = isinstance(term, Corrected)
            features = term.shown if corrected else list(range(term.n_features))
            header["parts"].append({**entries, "features": features})
            arrays |= own
            if corrected and (interval := term.interval) is not None:
                header["format_version"], header["parts"][-1]["within"] = 4, interval.feature
                arrays[f"parts.{number}.{_INTERVAL}"] = _as_floats([interval.low, interval.high])
    if names is not None:
        version = max(3, header["format_version"])
        header |= {"format_version": version, "feature_names": list(names)}
    header["arrays"] = [
        {"name": name, "shape": list(array.shape)} for name, array in arrays.items()
    ]
    header["sha256"] = _checksum(arrays)
    return header, arrays


def _is_whole(term: Term) -> bool:
    return isinstance(term, Square) or term.is_whole


def _describe_square(density: Square, prefix: str) -> tuple[dict[str, Any], Arrays]:
    own = (density.log_unit, density.support_points, density.unit_factor)
    arrays: Arrays = {
        prefix + name: _as_floats(value) for name, value in zip(_OWN_ARRAYS, own, strict=True)
    }
    if density.unit_constant is not None:
        arrays[prefix + _CONSTANT] = _as_floats(density.unit_constant)
    entries = {}
    for role, part in (("kernel", density.kernel), ("measure", density.measure)):
        entries[role], numbers = _describe_role(role, part, prefix)
        arrays |= numbers
    return entries, arrays


def _describe_role(role: str, part: Any, prefix: str) -> tuple[dict[str, Any], Arrays]:
    table = _TABLES[role]
    if table.get(part.name) is not type(part):
        raise ValueError(
            f"this density cannot be saved: its {role} {part!r} is none of those that a file can"
            f" name: {', '.join(table)}"
        )
    words, numbers = _split(part.parameters())
    return {"name": part.name, "parameters": words}, {
        f"{prefix}{role}.{name}": value for name, value in numbers.items()
    }


def _assemble(header: dict[str, Any], arrays: Arrays) -> SoSDensity:
    """What ``header`` and ``arrays`` describe, or ValueError: checksums say what was written, not
    that it makes sense.
    """
    for name, array in arrays.items():
        if np.isnan(
            array.min()
        ):  # no temporary as large as the array, as isnan(array).any() would need
            raise ValueError(f"its array {name!r} has NaN inside")
    constants = header["format_version"] > 1
    if "parts" in header:
        terms = _assemble_terms(header, arrays)
    else:
        square = _assemble_square(header, arrays, "", constants=constants)
        terms = Terms([(1.0, as_term(square))], square.measure)
    if arrays:
        raise ValueError(f"it holds arrays that belong to nothing: {_shown(sorted(arrays))}")
    names = _feature_names(header, terms.n_features)
    return from_terms(terms, None if names is None else tuple(names))


def _feature_names(header: dict[str, Any], d: int) -> list[str] | None:
    """The names that the header gives: they are shown on terminals, and so must be printable."""
    if "feature_names" not in header:
        return None
    names = header["feature_names"]
    if (
        not isinstance(names, list)
        or len(names) != d
        or not all(isinstance(name, str) for name in names)
    ):
        raise ValueError(f"its feature names must be {d} words; got {_shown(names)}")
    for name in names:
        if not name.isprintable() or len(name) > _LONGEST_NAME:
            raise ValueError(
                "the name of a feature in a file must be printable and have at most"
                f" {_LONGEST_NAME} characters; got {_shown(name)}"
            )
    if len(set(names)) < d:
        raise ValueError(f"its feature names must differ; got {_shown(names)}")
    return names


def _assemble_terms(header: dict[str, Any], arrays: Arrays) -> Terms:
    entries, measure, weights = (
        header["parts"],
        _rebuild("measure", header["measure"], arrays, ""),
        arrays.pop("weights", None),
    )
    if not isinstance(entries, list) or not entries:
        raise ValueError(f"its header must list the parts of the mixture; got {_shown(entries)}")
    if weights is None or weights.shape != (len(entries),):
        raise ValueError(
            f"its mixture of {len(entries)} parts must have an array of as many weights"
        )
    if not (weights.min() > 0.0 and abs(float(weights.sum()) - 1.0) <= _MASS_TOLERANCE):
        raise ValueError("its weights must be positive and sum to 1")
    parts = []
    for number, (entry, weight) in enumerate(zip(entries, weights.tolist(), strict=True)):
        inside = header["format_version"] > 3 and isinstance(entry, dict) and "within" in entry
        _check_keys(
            entry,
            {"kernel", "measure", "features"} | ({"within"} if inside else set()),
            "a part of its mixture",
        )
        square = _assemble_square(entry, arrays, f"parts.{number}.", constants=True)
        d, features = square.n_features, entry["features"]
        if (
            not isinstance(features, list)
            or not all(type(k) is int and 0 <= k < d for k in features)
            or len(set(features)) < len(features)
        ):
            raise ValueError(
                f"the features of a part must be different numbers from 0 to {d - 1}; got"
                f" {_shown(features)}"
            )
        interval = (
            _interval(entry["within"], d, features, arrays.pop(f"parts.{number}.{_INTERVAL}", None))
            if inside
            else None
        )
        parts.append((weight, _as_term(square, features, interval)))
    return Terms(parts, measure, check=True)


def _as_term(square: Square, features: list[int], interval: Interval | None) -> Term:
    """Only a square with a constant over normal densities can hide features."""
    term = as_term(square)
    if isinstance(term, Corrected):
        return Corrected(square, features, interval)
    whole = features == list(range(square.n_features)) and interval is None
    normal = square.measure.normals(square.n_features) is not None
    if not whole or normal or square.unit_constant is not None:
        raise ValueError(
            "a part that hides features or is relative to normal densities must have a constant"
            f" over a Normal or GaussianMixture measure; got one on {square.measure!r}"
        )
    return term


def _interval(feature: Any, d: int, features: list[int], sides: np.ndarray | None) -> Interval:
    if type(feature) is not int or not 0 <= feature < d or feature in features:
        raise ValueError(
            f"the feature of a part in an interval must be one of the {d} that are integrated out;"
            f" got {_shown(feature)}"
        )
    if sides is None or sides.shape != (2,) or not sides[0] < sides[1]:
        raise ValueError(
            "an interval must have two sides, the lower one first; got"
            f" {_shown(None if sides is None else sides.tolist())}"
        )
    return Interval(feature, float(sides[0]), float(sides[1]))


def _assemble_square(
    entries: Mapping[str, Any], arrays: Arrays, prefix: str, *, constants: bool
) -> Square:
    kernel, measure = (_rebuild(role, entries[role], arrays, prefix) for role in _TABLES)
    missing = {prefix + name for name in _OWN_ARRAYS} - arrays.keys()
    if missing:
        raise ValueError(f"its arrays lack {', '.join(sorted(missing))}")
    log_unit, points, F = (arrays.pop(prefix + name) for name in _OWN_ARRAYS)
    constant = arrays.pop(prefix + _CONSTANT, None) if constants else None
    if log_unit.ndim != 0 or points.ndim != 2 or F.ndim != 2 or F.shape[0] != points.shape[0]:
        raise ValueError(
            "log_unit, support_points and unit_factor must have shapes (), (m, d) and (m, k); "
            f"got {log_unit.shape}, {points.shape} and {F.shape}"
        )
    if constant is not None and constant.shape != F.shape[1:]:
        raise ValueError(
            f"{_CONSTANT} must have one entry for each of the {F.shape[1]} columns of unit_factor;"
            f" got {constant.shape}"
        )
    if constant is not None and not math.isfinite(measure.log_mass(points.shape[1])):
        raise ValueError(f"it has a constant on {measure!r}, whose mass is not finite")
    for name, array in zip((*_OWN_ARRAYS, _CONSTANT), (log_unit, points, F, constant), strict=True):
        if array is not None and not (np.isfinite(array.min()) and np.isfinite(array.max())):
            raise ValueError(f"its array {name!r} has an infinity inside")
    density = Square(kernel, points, F, float(log_unit), measure, constant)
    m, n = (
        points.shape[0],
        points.shape[0] if measure.atoms is None else measure.atoms.points.shape[0],
    )
    if (work := m * n * float(points.shape[1] + F.shape[1] + _KERNEL_VALUE)) > _MOST_WORK:
        raise ValueError(
            f"its mass, of {m} support points at {n} places, would take {work:.1e} steps to verify,"
            f" more than {_MOST_WORK:.0e}"
        )
    with quiet():
        mass = density.mass()  # which also finds a kernel or a measure of another dimension
    if not abs(mass - 1.0) <= _MASS_TOLERANCE:
        raise ValueError(
            f"its density has mass {mass:.9g}, where 1 within {_MASS_TOLERANCE:g} was expected"
        )
    return density


def _split(parameters: Mapping[str, Any]) -> tuple[Words, Arrays]:
    """Flags, whole numbers and words, which JSON keeps, apart from real numbers, which the arrays
    keep to the last bit.
    """
    words = {
        name: value
        for name, value in parameters.items()
        if value is None or isinstance(value, (bool, int, str))
    }
    return words, {
        name: _as_floats(value) for name, value in parameters.items() if name not in words
    }


def _rebuild(role: str, entry: Any, arrays: Arrays, prefix: str) -> Any:
    """The kernel or the measure, made of its entry in the header and of its arrays ``….role.…``,
    which are taken out of ``arrays``.
    """
    _check_keys(entry, {"name", "parameters"}, f"the {role} in its header")
    name, words, table = entry["name"], entry["parameters"], _TABLES[role]
    if not isinstance(name, str) or name not in table:
        raise ValueError(
            f"its {role} is {_shown(name)}, where one of {', '.join(table)} was expected"
        )
    if not isinstance(words, dict) or not all(
        value is None or isinstance(value, (bool, int, str)) for value in words.values()
    ):
        raise ValueError(
            f"the parameters of its {role} must be flags, whole numbers and words; got"
            f" {_shown(words)}"
        )
    own = [key for key in arrays if key.startswith(f"{prefix}{role}.")]
    numbers = {key.removeprefix(f"{prefix}{role}."): arrays.pop(key) for key in own}
    part = table[name](
        **words, **{key: value if value.ndim else float(value) for key, value in numbers.items()}
    )
    # A constructor fills gaps and converts types: what it made must say of itself exactly what the
    # file says of it.
    true_words, true_numbers = _split(part.parameters())
    same_words = words == true_words and all(
        type(words[key]) is type(true_words[key]) for key in words
    )  # True == 1
    if (
        not same_words
        or numbers.keys() != true_numbers.keys()
        or not all(np.array_equal(numbers[k], true_numbers[k]) for k in numbers)
    ):
        raise ValueError(
            f"the parameters of its {role} are not those of a {name} {role}:"
            f" {_shown(sorted({*words, *numbers}))}"
        )
    return part


def _as_floats(value: Any) -> np.ndarray:
    return np.asarray(to_numpy(value), dtype=_FLOATS, order="C")


def _checksum(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for array in arrays.values():
        digest.update(_bytes_of(array))
    return digest.hexdigest()


def _bytes_of(array: np.ndarray) -> memoryview:
    """The memory of a C-contiguous array, not copied."""
    return array.reshape(-1).view(np.uint8).data


# --- reading ---


def _header_and_its_end(file: BinaryIO) -> tuple[dict[str, Any], int]:
    """The header, its checksum verified and its fields in place, and the offset at which the arrays
    begin.
    """
    prefix = file.read(_PREFIX_BYTES)
    if not prefix.startswith(_MAGIC):
        if prefix.startswith(_MAGIC[:5]):
            raise ModelFormatError(
                "the file was converted as if it were text; copy it again from its source, in"
                " binary mode"
            )
        if prefix.startswith(_CONDITIONAL_MAGIC):
            raise ModelFormatError(
                "it holds the density of one column given others, with its regressors: ask it with"
                " ksos predict, or ksos.load in Python"
            )
        raise ValueError(f"it begins with {prefix[: len(_MAGIC)]!r}, where {_MAGIC!r} was expected")
    length = int.from_bytes(prefix[8:16], "little")
    if not 0 < length <= _HEADER_LIMIT or (_PREFIX_BYTES + length) % _ALIGNMENT:
        raise ValueError(f"it announces a header of {length} bytes, which no model has")
    text = file.read(length)
    if hashlib.sha256(text).digest() != prefix[16:]:
        raise ValueError("the checksum of its header does not match")
    return _parse(text), _PREFIX_BYTES + length


def _parse(text: bytes) -> dict[str, Any]:
    """The header as a dictionary with exactly the expected fields."""
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    version = header.get("format_version") if isinstance(header, dict) else None
    if type(version) is not int or version < 1:
        raise ValueError("its header has no format version")
    if version > _FORMAT_VERSION:
        raise ModelFormatError(
            f"the file is in format version {_shown(version)}, written by ksos"
            f" {_shown(header.get('library_version'))}; this ksos reads versions up to"
            f" {_FORMAT_VERSION}: update ksos"
        )
    mixed = version > 1 and "parts" in header
    named = (
        {"feature_names"} if version == 3 or (version > 3 and "feature_names" in header) else set()
    )
    _check_keys(header, _COMMON_KEYS | named | ({"parts"} if mixed else {"kernel"}), "its header")
    written_by = header["library_version"]
    if (
        not isinstance(written_by, str)
        or not written_by.isprintable()
        or len(written_by) > _LONGEST_VERSION
    ):  # it is shown on terminals
        raise ValueError(f"its library version must be a word; got {_shown(written_by)}")
    return header


def _read_arrays(file: BinaryIO, header: dict[str, Any], data_start: int) -> Arrays:
    """The arrays, their sizes compared with the file's length before anything is allocated, their
    checksum verified after.
    """
    size = os.fstat(file.fileno()).st_size
    shapes = _shapes(header["arrays"], (size - data_start) // FLOAT_BYTES)
    expected = data_start + FLOAT_BYTES * sum(math.prod(shape) for shape in shapes.values())
    if size != expected:
        raise ValueError(f"it has {size} bytes, where its header announces {expected}")
    require_memory(expected - data_start, "the model", "load it where there is more memory")
    arrays = {name: np.empty(shape, dtype=_FLOATS) for name, shape in shapes.items()}
    for array in arrays.values():
        if file.readinto(_bytes_of(array)) != array.nbytes:  # type: ignore[attr-defined]
            raise ValueError("it ended while it was read")
    if _checksum(arrays) != header["sha256"]:
        raise ValueError("the checksum of its arrays does not match")
    return {name: array.astype(np.float64, copy=False) for name, array in arrays.items()}


def _shapes(entries: Any, available: int) -> dict[str, tuple[int, ...]]:
    """Name and shape of every array; none has a side longer than the ``available`` numbers, so that
    products stay small.
    """
    if not isinstance(entries, list):
        raise ValueError(f"its header must list the arrays; got {_shown(entries)}")
    shapes: dict[str, tuple[int, ...]] = {}
    for entry in entries:
        _check_keys(entry, {"name", "shape"}, "an array in its header")
        name, shape = entry["name"], entry["shape"]
        if not isinstance(name, str) or name in shapes:
            raise ValueError(f"its arrays must have names, one each; got {_shown(name)}")
        if (
            not isinstance(shape, list)
            or len(shape) > _MOST_DIMENSIONS
            or not all(type(n) is int and 1 <= n <= available for n in shape)
        ):
            raise ValueError(f"its array {_shown(name)} cannot have shape {_shown(shape)}")
        shapes[name] = tuple(shape)
    return shapes


def _check_keys(entry: Any, keys: set[str], what: str) -> None:
    if not isinstance(entry, dict) or entry.keys() != keys:
        got = sorted(entry) if isinstance(entry, dict) else entry
        raise ValueError(
            f"{what} must have the fields {', '.join(sorted(keys))}; got {_shown(got)}"
        )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) != len(pairs):
        raise ValueError("its header names a field twice")
    return out


def _shown(value: Any) -> str:
    """``value`` as it fits into a message, whatever a forger put there."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
