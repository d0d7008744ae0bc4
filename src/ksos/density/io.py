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
from ksos.density.kinds import Column, Columns
from ksos.density.mixed import MixedTerms
from ksos.density.normals import Interval
from ksos.density.square import Square
from ksos.density.table import TableDensity
from ksos.density.terms import Term, Terms, as_term
from ksos.exceptions import ModelFormatError
from ksos.ground.arrays import quiet, to_numpy
from ksos.ground.files import replace_whole
from ksos.ground.frames import MAKES
from ksos.ground.memory import FLOAT_BYTES, require_memory
from ksos.kernels import KERNELS
from ksos.measures import MEASURES

__all__ = ["load", "read_header", "save"]

_MAGIC = b"\x89KSOS\r\n\x1a"  # not text, and no longer itself once line endings have been converted
_CONDITIONAL_MAGIC = b"\x89KSOC"  # another kind of file, which holds more than a density
# 1: a density; 2: the constant of a density, mixtures; 3: names of features; 4: parts given an
# interval; 5: the density of a table with columns of any kind
_FORMAT_VERSION = 5
_PREFIX_BYTES = 48  # the magic, the header's length, the header's SHA-256
_ALIGNMENT = 64  # of the arrays, to a line of the cache: they can be mapped into memory
_HEADER_LIMIT = 1 << 16  # bounds what parsing can cost before anything is known to be true
_FLOATS = np.dtype("<f8")
_MOST_DIMENSIONS = 8  # of an array: no kernel or measure has more than three
_MASS_TOLERANCE = 1e-6  # that of SoSDensity: a mass farther from one is no rounding
_LONGEST_VERSION = 80  # characters, as one line of a terminal shows them
_LONGEST_NAME = 1000  # of a feature: columns named after sentences are known, longer ones are not
_KERNEL_VALUE = 20  # steps of an exponential, beside those of its product with the factor
_MOST_WORK = 2e10  # what a file may make its reader do: some ten seconds
_OWN_ARRAYS = ("log_unit", "support_points", "unit_factor")
_CONSTANT = "unit_constant"
_INTERVAL = "interval"
_WORDS = (bool, int, str, type(None))
_COMMON_KEYS = {"format_version", "library_version", "measure", "arrays", "sha256"}
_TABLES: dict[str, Mapping[str, type[Any]]] = {"kernel": KERNELS, "measure": MEASURES}

Words = dict[str, "bool | int | str | None"]
Arrays = dict[str, np.ndarray]


def save(density: SoSDensity | TableDensity, path: str | os.PathLike[str]) -> None:
    """Write ``density`` to the file ``path``; at every moment the old file or the new one is there,
    whole.

    It raises ValueError if :func:`load` would not read the file: a kernel or measure of the user's
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


def load(path: str | os.PathLike[str]) -> Any:
    """The density, mixture or density of a table in the file ``path``, bit for bit as it was saved.

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


# A density as a header and arrays


def _describe(density: SoSDensity | TableDensity) -> tuple[dict[str, Any], Arrays]:
    """What the file says of ``density``: its header, and its arrays in their order."""
    if isinstance(density, TableDensity):
        return _describe_table(density)
    terms, names, arrays = density.terms.on_host, density.feature_names, Arrays()
    header: dict[str, Any] = {"format_version": 2, "library_version": __version__}
    if (own := terms.own) is not None and own.is_whole:
        header |= _describe_square(own.joint, "", arrays)
        header["format_version"] = 1 if own.joint.unit_constant is None else 2
    else:
        header |= {"measure": _describe_role("measure", terms.measure, "", arrays), "parts": []}
        arrays["weights"] = _as_floats([weight for weight, _ in terms.weighted])
        for number, (_, term) in enumerate(terms.weighted):
            prefix = f"parts.{number}."
            entry = _describe_square(term.joint, prefix, arrays) | {"features": term.shown}
            if (interval := term.interval) is not None:
                header["format_version"], entry["within"] = 4, interval.feature
                arrays[prefix + _INTERVAL] = _as_floats([interval.low, interval.high])
            header["parts"].append(entry)
    if names is not None:
        version = max(3, header["format_version"])
        header |= {"format_version": version, "feature_names": list(names)}
        if density._make != "pandas":
            header["make"] = density._make
    shapes = [{"name": name, "shape": list(array.shape)} for name, array in arrays.items()]
    return header | {"arrays": shapes, "sha256": _checksum(arrays)}, arrays


def _describe_table(density: TableDensity) -> tuple[dict[str, Any], Arrays]:
    """The columns with their kinds, and the arrays of every part."""
    arrays = {"weights": _as_floats([weight for weight, _ in density.parts])}
    for number, (_, terms) in enumerate(density.parts):
        prefix = f"parts.{number}."
        arrays |= {prefix + name: _as_floats(one) for name, one in terms.arrays().items()}
    shapes = [{"name": name, "shape": list(array.shape)} for name, array in arrays.items()]
    header = {
        "format_version": 5,
        "library_version": __version__,
        "columns": [column.words() for column in density.columns.listed],
        "make": density.columns.make,
    }
    return header | {"arrays": shapes, "sha256": _checksum(arrays)}, arrays


def _describe_square(square: Square, prefix: str, arrays: Arrays) -> dict[str, Any]:
    own = (square.log_unit, square.support_points, square.unit_factor, square.unit_constant)
    for name, value in zip((*_OWN_ARRAYS, _CONSTANT), own, strict=True):
        if value is not None:
            arrays[prefix + name] = _as_floats(value)
    return {role: _describe_role(role, getattr(square, role), prefix, arrays) for role in _TABLES}


def _describe_role(role: str, part: Any, prefix: str, arrays: Arrays) -> dict[str, Any]:
    table = _TABLES[role]
    if table.get(part.name) is not type(part):
        raise ValueError(
            f"this density cannot be saved: its {role} {part!r} is none of those that a file can"
            f" name: {', '.join(table)}"
        )
    words, numbers = _split(part.parameters())
    arrays |= {f"{prefix}{role}.{name}": value for name, value in numbers.items()}
    return {"name": part.name, "parameters": words}


def _assemble(header: dict[str, Any], arrays: Arrays) -> SoSDensity | TableDensity:
    """What ``header`` and ``arrays`` describe, or ValueError: checksums say what was written, not
    that it makes sense.
    """
    for name, array in arrays.items():
        # no temporary as large as the array, as isnan(array).any() would need
        whole = not array.size or not np.isnan(array.min())
        _require(whole, f"its array {name!r} has NaN inside")
    if "columns" in header:
        return _assemble_table(header, arrays)
    if "parts" in header:
        terms = _assemble_terms(header, arrays)
    else:
        square = _assemble_square(header, arrays, "", constants=header["format_version"] > 1)
        terms = Terms([(1.0, as_term(square))], square.measure)
    _require(not arrays, f"it holds arrays that belong to nothing: {_shown(sorted(arrays))}")
    if "feature_names" not in header:
        return from_terms(terms)
    names, d = header["feature_names"], terms.n_features
    _require(
        _is_list_of(names, str) and len(names) == d,
        f"its feature names must be {d} words; got {_shown(names)}",
    )
    _require(len(set(names)) == d, f"its feature names must differ; got {_shown(names)}")
    for name in names:
        _require_word(name, _LONGEST_NAME, "the name of a feature in a file")
    density = from_terms(terms, tuple(names))
    density._make = header.get("make", density._make)
    _require_make(density._make)
    return density


def _assemble_table(header: dict[str, Any], arrays: Arrays) -> TableDensity:
    """The density of a table; every part must be a density over the columns of the header."""
    entries, make = header["columns"], header["make"]
    _require(isinstance(entries, list) and len(entries) > 0, "its header must list the columns")
    _require_make(make, None)
    columns = Columns(tuple(Column.of_words(entry) for entry in entries), make)
    names = [column.name for column in columns.listed]
    _require(len(set(names)) == len(names), f"its columns must differ; got {_shown(names)}")
    weights = arrays.pop("weights", np.empty(0))
    fits = weights.ndim == 1 and weights.size > 0 and float(weights.min()) > 0.0
    fits = fits and abs(float(weights.sum()) - 1.0) <= _MASS_TOLERANCE
    _require(fits, "its weights must be positive and sum to 1")
    parts = []
    for number, weight in enumerate(weights.tolist()):
        prefix = f"parts.{number}."
        own = [name for name in arrays if name.startswith(prefix)]
        terms = MixedTerms.from_arrays({k.removeprefix(prefix): arrays.pop(k) for k in own})
        same = terms.levels == columns.levels and terms.n_numeric == len(columns.lines)
        _require(same, f"its part {number} has other columns than the header lists")
        parts.append((weight, terms))
    _require(not arrays, f"it holds arrays that belong to nothing: {_shown(sorted(arrays))}")
    return TableDensity(columns, parts)


def _assemble_terms(header: dict[str, Any], arrays: Arrays) -> Terms:
    entries, measure = header["parts"], _rebuild("measure", header["measure"], arrays, "")
    _require(
        isinstance(entries, list) and len(entries) > 0,
        f"its header must list the parts of the mixture; got {_shown(entries)}",
    )
    n, weights = len(entries), arrays.pop("weights", np.empty(0))
    _require(
        weights.shape == (n,), f"its mixture of {n} parts must have an array of as many weights"
    )
    _require(
        weights.min() > 0.0 and abs(float(weights.sum()) - 1.0) <= _MASS_TOLERANCE,
        "its weights must be positive and sum to 1",
    )
    parts = []
    for number, (entry, weight) in enumerate(zip(entries, weights.tolist(), strict=True)):
        inside = header["format_version"] > 3 and isinstance(entry, dict) and "within" in entry
        keys = {"kernel", "measure", "features"} | ({"within"} if inside else set())
        _check_keys(entry, keys, "a part of its mixture")
        parts.append((weight, _assemble_part(entry, arrays, f"parts.{number}.")))
    return Terms(parts, measure, check=True)


def _assemble_part(entry: dict[str, Any], arrays: Arrays, prefix: str) -> Term:
    """Only a square with a constant over normal densities can hide features."""
    square = _assemble_square(entry, arrays, prefix, constants=True)
    d, shown, interval = square.n_features, entry["features"], None
    _require(
        _is_list_of(shown, int) and set(shown) <= set(range(d)) and len(set(shown)) == len(shown),
        f"the features of a part must be different numbers from 0 to {d - 1}; got {_shown(shown)}",
    )
    if "within" in entry:
        feature, sides = entry["within"], arrays.pop(prefix + _INTERVAL, np.empty(0))
        _require(
            type(feature) is int and feature in set(range(d)) - set(shown),
            f"the feature of a part in an interval must be one of the {d} that are integrated out;"
            f" got {_shown(feature)}",
        )
        _require(
            sides.shape == (2,) and bool(sides[0] < sides[1]),
            f"an interval must have two sides, the lower one first; got {_shown(sides.tolist())}",
        )
        interval = Interval(feature, float(sides[0]), float(sides[1]))
    term, whole = as_term(square, shown, interval), shown == square.shown and interval is None
    plain = square.unit_constant is None and square.measure.normals(d) is None
    _require(
        isinstance(term, Corrected) or (whole and plain),
        "a part that hides features or is relative to normal densities must have a constant"
        f" over a Normal or GaussianMixture measure; got one on {square.measure!r}",
    )
    return term


def _assemble_square(
    entries: Mapping[str, Any], arrays: Arrays, prefix: str, *, constants: bool
) -> Square:
    kernel, measure = (_rebuild(role, entries[role], arrays, prefix) for role in _TABLES)
    missing = {prefix + name for name in _OWN_ARRAYS} - arrays.keys()
    _require(not missing, f"its arrays lack {', '.join(sorted(missing))}")
    log_unit, points, F = (arrays.pop(prefix + name) for name in _OWN_ARRAYS)
    constant = arrays.pop(prefix + _CONSTANT, None) if constants else None
    _require(
        log_unit.ndim == 0 and points.ndim == F.ndim == 2 and len(F) == len(points),
        "log_unit, support_points and unit_factor must have shapes (), (m, d) and (m, k); "
        f"got {log_unit.shape}, {points.shape} and {F.shape}",
    )
    if constant is not None:
        _require(
            constant.shape == F.shape[1:],
            f"{_CONSTANT} must have one entry for each of the columns of unit_factor; got"
            f" {constant.shape}, {F.shape}",
        )
        _require(
            math.isfinite(measure.log_mass(points.shape[1])),
            f"it has a constant on {measure!r}, whose mass is not finite",
        )
    for name, array in zip((*_OWN_ARRAYS, _CONSTANT), (log_unit, points, F, constant), strict=True):
        _require(
            array is None or bool(np.isfinite(array.min()) and np.isfinite(array.max())),
            f"its array {name!r} has an infinity inside",
        )
    square = Square(kernel, points, F, float(log_unit), measure, constant)
    m = points.shape[0]
    n = m if measure.atoms is None else measure.atoms.points.shape[0]
    work = m * n * float(points.shape[1] + F.shape[1] + _KERNEL_VALUE)
    _require(
        work <= _MOST_WORK,
        f"its mass, of {m} support points at {n} places, would take {work:.1e} steps to verify,"
        f" more than {_MOST_WORK:.0e}",
    )
    with quiet():
        mass = square.mass()  # which also finds a kernel or a measure of another dimension
    _require(
        abs(mass - 1.0) <= _MASS_TOLERANCE,
        f"its density has mass {mass:.9g}, where 1 within {_MASS_TOLERANCE:g} was expected",
    )
    return square


def _split(parameters: Mapping[str, Any]) -> tuple[Words, Arrays]:
    """Flags, whole numbers and words, which JSON keeps, apart from real numbers, which the arrays
    keep to the last bit.
    """
    words = {name: value for name, value in parameters.items() if isinstance(value, _WORDS)}
    return words, {name: _as_floats(parameters[name]) for name in parameters if name not in words}


def _rebuild(role: str, entry: Any, arrays: Arrays, prefix: str) -> Any:
    """The kernel or the measure, made of its entry in the header and of its arrays ``….role.…``,
    which are taken out of ``arrays``.
    """
    _check_keys(entry, {"name", "parameters"}, f"the {role} in its header")
    name, words, table = entry["name"], entry["parameters"], _TABLES[role]
    what = f"the parameters of its {role}"
    _require(
        isinstance(name, str) and name in table,
        f"its {role} is {_shown(name)}, where one of {', '.join(table)} was expected",
    )
    _require(
        isinstance(words, dict) and _is_list_of(list(words.values()), *_WORDS),
        f"{what} must be flags, whole numbers and words; got {_shown(words)}",
    )
    start = f"{prefix}{role}."
    own = [key for key in arrays if key.startswith(start)]
    numbers = {key.removeprefix(start): arrays.pop(key) for key in own}
    scalars = {key: value if value.ndim else float(value) for key, value in numbers.items()}
    part = table[name](**words, **scalars)
    # A constructor fills gaps and converts types: what it made must say of itself exactly what the
    # file says of it.
    true_words, true_numbers = _split(part.parameters())
    same = numbers.keys() == true_numbers.keys() and words == true_words
    same = same and all(type(words[key]) is type(true_words[key]) for key in words)  # True == 1
    same = same and all(np.array_equal(numbers[key], true_numbers[key]) for key in numbers)
    got = _shown(sorted({*words, *numbers}))
    _require(same, f"{what} are not those of a {name} {role}: {got}")
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


# Reading


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
    _require(
        0 < length <= _HEADER_LIMIT and not (_PREFIX_BYTES + length) % _ALIGNMENT,
        f"it announces a header of {length} bytes, which no model has",
    )
    text = file.read(length)
    _require(
        hashlib.sha256(text).digest() == prefix[16:], "the checksum of its header does not match"
    )
    return _parse(text), _PREFIX_BYTES + length


def _parse(text: bytes) -> dict[str, Any]:
    """The header as a dictionary with exactly the expected fields."""
    try:
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    except RecursionError:
        raise ValueError("its header is nested too deeply") from None
    version: Any = header.get("format_version") if isinstance(header, dict) else None
    _require(type(version) is int and version > 0, "its header has no format version")
    if version > _FORMAT_VERSION:
        raise ModelFormatError(
            f"the file is in format version {_shown(version)}, written by ksos"
            f" {_shown(header.get('library_version'))}; this ksos reads versions up to"
            f" {_FORMAT_VERSION}: update ksos"
        )
    if version > 4 and "columns" in header:
        _check_keys(header, _COMMON_KEYS - {"measure"} | {"columns", "make"}, "its header")
        _require_word(header["library_version"], _LONGEST_VERSION, "its library version")
        return header
    mixed = version > 1 and "parts" in header
    named = (
        {"feature_names"} if version == 3 or (version > 3 and "feature_names" in header) else set()
    )
    named |= {"make"} & header.keys() if named else set()
    _check_keys(header, _COMMON_KEYS | named | ({"parts"} if mixed else {"kernel"}), "its header")
    _require_word(header["library_version"], _LONGEST_VERSION, "its library version")
    return header


def _read_arrays(file: BinaryIO, header: dict[str, Any], data_start: int) -> Arrays:
    """The arrays, their sizes compared with the file's length before anything is allocated, their
    checksum verified after.
    """
    size = os.fstat(file.fileno()).st_size
    # of a table without categories, or without numbers, some arrays are empty
    fewest = 0 if "columns" in header else 1
    shapes = _shapes(header["arrays"], (size - data_start) // FLOAT_BYTES, fewest)
    expected = data_start + FLOAT_BYTES * sum(math.prod(shape) for shape in shapes.values())
    _require(size == expected, f"it has {size} bytes, where its header announces {expected}")
    require_memory(expected - data_start, "the model", "load it where there is more memory")
    arrays = {name: np.empty(shape, dtype=_FLOATS) for name, shape in shapes.items()}
    for array in arrays.values():
        n = file.readinto(_bytes_of(array)) if array.size else 0  # type: ignore[attr-defined]
        _require(n == array.nbytes, "it ended while it was read")
    _require(_checksum(arrays) == header["sha256"], "the checksum of its arrays does not match")
    return {name: array.astype(np.float64, copy=False) for name, array in arrays.items()}


def _shapes(entries: Any, available: int, fewest: int) -> dict[str, tuple[int, ...]]:
    """Name and shape of every array; none has a side longer than the ``available`` numbers, so that
    products stay small.
    """
    _require(isinstance(entries, list), f"its header must list the arrays; got {_shown(entries)}")
    shapes: dict[str, tuple[int, ...]] = {}
    for entry in entries:
        _check_keys(entry, {"name", "shape"}, "an array in its header")
        name, shape = entry["name"], entry["shape"]
        _require(
            isinstance(name, str) and name not in shapes,
            f"its arrays must have names, one each; got {_shown(name)}",
        )
        _require(
            _is_list_of(shape, int)
            and len(shape) <= _MOST_DIMENSIONS
            and all(fewest <= n <= available for n in shape),
            f"its array {_shown(name)} cannot have shape {_shown(shape)}",
        )
        shapes[name] = tuple(shape)
    return shapes


def _require(true: bool, message: str) -> None:
    """Whatever a forger put there: either this holds, or the file is no model."""
    if not true:
        raise ValueError(message)


def _require_word(value: Any, most: int, what: str) -> None:
    """A word that is shown on terminals, which a forger would like to control."""
    _require(
        isinstance(value, str) and value.isprintable() and len(value) <= most,
        f"{what} must be printable, of at most {most} characters; got {_shown(value)}",
    )


def _check_keys(entry: Any, keys: set[str], what: str) -> None:
    got = sorted(entry) if isinstance(entry, dict) else entry
    _require(
        isinstance(entry, dict) and entry.keys() == keys,
        f"{what} must have the fields {', '.join(sorted(keys))}; got {_shown(got)}",
    )


def _require_make(make: Any, *others: Any) -> None:
    known = [*MAKES, *others]
    _require(make in known, f"its make must be one of {', '.join(map(str, known))}; got {make!r}")


def _is_list_of(value: Any, *types: type) -> bool:
    """Whether it is a list of these types and none derived from them: True is no number."""
    return isinstance(value, list) and all(type(one) in types for one in value)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    _require(len(out) == len(pairs), "its header names a field twice")
    return out


def _shown(value: Any) -> str:
    """``value`` as it fits into a message, whatever a forger put there."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
