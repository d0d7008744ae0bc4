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
from ksos.density.density import SoSDensity, from_terms
from ksos.density.kinds import Column, Columns
from ksos.density.mixed import MixedTerms
from ksos.density.normals import Interval
from ksos.density.square import Square
from ksos.density.table import TableDensity
from ksos.density.terms import Term, Terms, as_term
from ksos.exceptions import ModelFormatError
from ksos.ground import (
    FLOAT_BYTES,
    MAKES,
    as_feature_names,
    quiet,
    replace_whole,
    require_memory,
    to_numpy,
)
from ksos.kernels import KERNELS
from ksos.measures import MEASURES

_MAGIC = b"\x89KSOS\r\n\x1a"  # not text, and no longer itself once line endings have been converted
_CONDITIONAL_MAGIC = b"\x89KSOC"  # another kind of file, which holds more than a density
# 1: a density; 2: the constant of a density, mixtures; 3: names of features; 4: parts given an
# interval; 5: the density of a table with columns of any kind
_FORMAT_VERSION = 5  # what a reader must know, see above
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
_TABLES: dict[str, Mapping[str, type[Any]]] = {"kernel": KERNELS, "measure": MEASURES}

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
        _assemble(_parse(text), arrays)  # as load will
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
        except (
            ValueError,
            TypeError,
            ArithmeticError,
            LookupError,
            AttributeError,
            RecursionError,
        ) as error:
            raise ModelFormatError(
                f"{os.fsdecode(path)} is not a model that ksos can read: {error}; expected a whole"
                " file as SoSDensity.save wrote it: copy it again from its source, or save the"
                " model anew"
            ) from None


# A density as a header and arrays


def _describe(
    density: SoSDensity | TableDensity, *, in_parts: bool = False
) -> tuple[dict[str, Any], Arrays]:
    """What the file says of ``density``: its header, and its arrays in their order; a density of
    one term perhaps as a mixture of one part.
    """
    arrays, names = Arrays(), None
    header: dict[str, Any] = {"format_version": 2, "library_version": __version__}
    if isinstance(density, TableDensity):
        header |= {"format_version": 5, "make": density.columns.make}
        header["columns"] = [column.words() for column in density.columns.listed]
        arrays["weights"] = _as_floats([weight for weight, _ in density.parts])
        for number, (_, part) in enumerate(density.parts):
            own = part.arrays().items()
            arrays |= {f"parts.{number}.{name}": _as_floats(one) for name, one in own}
    else:
        terms, names = density.terms.on_host, density.feature_names
        if (one := terms.own) is not None and one.is_whole and not in_parts:
            header |= _describe_square(one.joint, "", arrays)
            header["format_version"] = 1 if one.joint.unit_constant is None else 2
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
    # JSON keeps flags, whole numbers and words; the arrays keep real numbers to the last bit
    given = part.parameters()
    words = {name: value for name, value in given.items() if isinstance(value, _WORDS)}
    reals = {name: value for name, value in given.items() if name not in words}
    arrays |= {f"{prefix}{role}.{name}": _as_floats(value) for name, value in reals.items()}
    return {"name": part.name, "parameters": words}


def _assemble(header: dict[str, Any], arrays: Arrays) -> SoSDensity | TableDensity:
    """What ``header`` and ``arrays`` describe, or ValueError: checksums say what was written, not
    that it makes sense.

    One rule finds NaN, and whatever a constructor converts, fills in or drops: what is made must be
    described by just this header and these arrays.
    """
    _require_word(header["library_version"], _LONGEST_VERSION, "its library version")
    make, left = header.get("make"), dict(arrays)
    _require(make in (None, *MAKES), f"its make must be one of {MAKES}; got {_shown(make)}")
    density = _assemble_table(header, left) if "columns" in header else _with_names(header, left)
    again, same = _describe(density, in_parts="parts" in header)
    for field in sorted((header.keys() | again.keys()) - {"library_version", "sha256"}):
        # the order of the arrays does not matter
        got, true = (
            json.dumps(sorted(one.get(field, ()), key=str) if field == "arrays" else one.get(field))
            for one in (header, again)
        )
        _require(
            got == true and field in header,
            f"its field {field} is {_shown(got)}, where its density has {_shown(true)}",
        )
    for name, array in same.items():
        # shares are scaled to sum one
        equal = np.allclose if name == "weights" else np.array_equal
        _require(equal(arrays[name], array), f"its array {name!r} is not that of its density")
    return density


def _with_names(header: dict[str, Any], arrays: Arrays) -> SoSDensity:
    terms = _assemble_terms(header, arrays)
    names = header.get("feature_names")
    for name in names or ():
        _require_word(name, _LONGEST_NAME, "the name of a feature in a file")
    names = None if names is None else as_feature_names(names, terms.n_features)
    density = from_terms(terms, names)
    density._make = header.get("make") or density._make
    return density


def _assemble_table(header: dict[str, Any], arrays: Arrays) -> TableDensity:
    """The density of a table; every part must be a density over the columns of the header."""
    columns = Columns(tuple(map(Column.of_words, header["columns"])), header["make"])
    names = [column.name for column in columns.listed]
    _require(len(set(names)) == len(names) > 0, f"its columns must differ; got {_shown(names)}")
    parts = []
    for number, weight in enumerate(_weights(arrays)):
        prefix = f"parts.{number}."
        own = [name for name in arrays if name.startswith(prefix)]
        terms = MixedTerms.from_arrays({k.removeprefix(prefix): arrays.pop(k) for k in own})
        same = terms.levels == columns.levels and terms.n_numeric == len(columns.lines)
        _require(same, f"its part {number} has other columns than the header lists")
        parts.append((weight, terms))
    return TableDensity(columns, parts)


def _weights(arrays: Arrays) -> list[float]:
    weights: list[float] = arrays.pop("weights").tolist()
    fits = min(weights) > 0.0 and abs(math.fsum(weights) - 1.0) <= _MASS_TOLERANCE
    _require(fits, "its weights must be positive and sum to 1")
    return weights


def _assemble_terms(header: dict[str, Any], arrays: Arrays) -> Terms:
    if "parts" not in header:
        square = _assemble_square(header, arrays, "")
        return Terms([(1.0, as_term(square))], square.measure)
    parts, measure = [], _rebuild("measure", header["measure"], arrays, "")
    for number, (entry, weight) in enumerate(zip(header["parts"], _weights(arrays), strict=True)):
        _require(isinstance(entry, dict), f"a part must have fields; got {_shown(entry)}")
        parts.append((weight, _assemble_part(entry, arrays, f"parts.{number}.")))
    return Terms(parts, measure, check=True)


def _assemble_part(entry: dict[str, Any], arrays: Arrays, prefix: str) -> Term:
    """Only a square with a constant over normal densities can hide features."""
    square, interval = _assemble_square(entry, arrays, prefix), None
    shown = [int(k) for k in entry["features"]]
    used = [*shown]
    if "within" in entry:
        interval = Interval(int(entry["within"]), *arrays.pop(prefix + _INTERVAL).tolist())
        used.append(interval.feature)
        _require(interval.low < interval.high, "an interval must have its lower side first")
    known = set(range(square.n_features))
    _require(
        len(shown) > 0 and set(used) <= known and len(set(used)) == len(used),
        f"the features of a part, and that of an interval, must be different ones of {len(known)};"
        f" got {_shown(used)}",
    )
    return as_term(square, shown, interval)


def _assemble_square(entries: Mapping[str, Any], arrays: Arrays, prefix: str) -> Square:
    kernel, measure = (_rebuild(role, entries[role], arrays, prefix) for role in _TABLES)
    log_unit, points, F = (arrays.pop(prefix + name) for name in _OWN_ARRAYS)
    constant = arrays.pop(prefix + _CONSTANT, None)
    c = F[0] if constant is None else constant
    _require(
        log_unit.ndim == 0
        and points.ndim == F.ndim == 2
        and len(F) == len(points)
        and c.shape == F.shape[1:],
        "log_unit, support_points, unit_factor and a constant must have shapes (), (m, d), (m, k)"
        f" and (k); got {log_unit.shape}, {points.shape}, {F.shape} and {c.shape}",
    )
    for name, array in zip((*_OWN_ARRAYS, _CONSTANT), (log_unit, points, F, constant), strict=True):
        _require(
            array is None or bool(np.isfinite(array.min()) and np.isfinite(array.max())),
            f"its array {name!r} has NaN or an infinity inside",
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


def _rebuild(role: str, entry: Any, arrays: Arrays, prefix: str) -> Any:
    """The kernel or the measure, made of its entry in the header and of its arrays ``….role.…``,
    which are taken out of ``arrays``.
    """
    name, words, table = entry["name"], entry["parameters"], _TABLES[role]
    _require(
        isinstance(name, str) and name in table,
        f"its {role} is {_shown(name)}, where one of {', '.join(table)} was expected",
    )
    start = f"{prefix}{role}."
    own = [key for key in arrays if key.startswith(start)]
    numbers = {key.removeprefix(start): arrays.pop(key) for key in own}
    scalars = {key: value if value.ndim else float(value) for key, value in numbers.items()}
    return table[name](**words, **scalars)


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
    header = json.loads(text.decode("utf-8"), object_pairs_hook=_unique)
    version: Any = header.get("format_version") if isinstance(header, dict) else None
    _require(type(version) is int and version > 0, "its header has no format version")
    if version > _FORMAT_VERSION:
        raise ModelFormatError(
            f"the file is in format version {_shown(version)}, written by ksos"
            f" {_shown(header.get('library_version'))}; this ksos reads versions up to"
            f" {_FORMAT_VERSION}: update ksos"
        )
    return header


def _read_arrays(file: BinaryIO, header: dict[str, Any], data_start: int) -> Arrays:
    """The arrays, their sizes compared with the file's length before anything is allocated, their
    checksum verified after.
    """
    size = os.fstat(file.fileno()).st_size
    # of a table without categories, or without numbers, some arrays are empty
    fewest, most = 0 if "columns" in header else 1, (size - data_start) // FLOAT_BYTES
    shapes = {entry["name"]: entry["shape"] for entry in header["arrays"]}
    for name, shape in shapes.items():
        # no side is longer than the file, so that products stay small
        fits = isinstance(shape, list) and len(shape) <= _MOST_DIMENSIONS
        fits = fits and all(type(n) is int and fewest <= n <= most for n in shape)
        _require(fits, f"its array {_shown(name)} cannot have shape {_shown(shape)}")
    expected = data_start + FLOAT_BYTES * sum(math.prod(shape) for shape in shapes.values())
    _require(size == expected, f"it has {size} bytes, where its header announces {expected}")
    require_memory(expected - data_start, "the model", "load it where there is more memory")
    arrays = {name: np.empty(shape, dtype=_FLOATS) for name, shape in shapes.items()}
    for array in filter(np.size, arrays.values()):  # an empty one has no bytes
        file.readinto(_bytes_of(array))  # type: ignore[attr-defined]
    _require(_checksum(arrays) == header["sha256"], "the checksum of its arrays does not match")
    return {name: array.astype(np.float64, copy=False) for name, array in arrays.items()}


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


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    _require(len(out) == len(pairs), "its header names a field twice")
    return out


def _shown(value: Any) -> str:
    """``value`` as it fits into a message, whatever a forger put there."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
