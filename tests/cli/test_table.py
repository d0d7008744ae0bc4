"""Tables: what is read is exact, and what cannot be read is refused in one line with file, row and
column (bad-input row 18).
"""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import lzma
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from csv_reading import read, refusal
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from ksos.data import LONGEST_LINE, TableOptions, read_table

# --- what is read ---


@given(
    arrays(
        np.float64,
        st.tuples(st.integers(1, 6), st.integers(1, 4)),
        elements=st.floats(allow_nan=False, allow_infinity=False),
    )
)
def test_numbers_come_back_bit_for_bit(X: np.ndarray) -> None:
    text = "\n".join(",".join(map(repr, row)) for row in X.tolist())
    np.testing.assert_array_equal(read(text).points, X)
    with_header = read(
        ",".join(f"x{k}" for k in range(X.shape[1])) + "\r\n" + text.replace("\n", "\r\n") + "\r\n"
    )
    np.testing.assert_array_equal(with_header.points, X)
    assert with_header.names == tuple(f"x{k}" for k in range(X.shape[1]))


@pytest.mark.parametrize(
    "text",
    [
        "1,2\n3,4",
        "1,2\n3,4\n",
        "1,2\r\n3,4\r\n",
        "1,2\n3,4\n\n\n  \n",
        ' 1, 2\n "3", "4"\n',
        "x,y\n1,2\n3,4\n",
        "+1e0,.2e1\n3.,04\n",
        '"x, y",z\n1,2\n3,4',
    ],
)
def test_the_same_numbers_in_many_spellings(text: str) -> None:
    np.testing.assert_array_equal(read(text).points, [[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    ("options", "names", "points", "weights"),
    [
        ({}, ("x", "y", "w"), [[1, 2, 3], [4, 5, 6]], None),
        ({"weights": "w"}, ("x", "y"), [[1, 2], [4, 5]], [3, 6]),
        ({"weights": "1"}, ("y", "w"), [[2, 3], [5, 6]], [1, 4]),
        ({"columns": ["y", "x"]}, ("y", "x"), [[2, 1], [5, 4]], None),
        ({"columns": ["3", "x"]}, ("w", "x"), [[3, 1], [6, 4]], None),
        ({"columns": ["2"], "weights": "w"}, ("y",), [[2], [5]], [3, 6]),
    ],
)
def test_columns_and_weights_by_name_and_by_number(
    options: dict, names: tuple, points: list, weights: list | None
) -> None:
    table = read("x,y,w\n1,2,3\n4,5,6\n", **options)
    assert table.names == names
    np.testing.assert_array_equal(table.points, points)
    assert (table.weights is None) == (weights is None)
    if weights is not None:
        np.testing.assert_array_equal(table.weights, weights)


def test_columns_that_are_not_chosen_may_hold_anything() -> None:
    text = "x,label,y\n1,red,2\n3,,4\n5,nan,6\n"
    np.testing.assert_array_equal(read(text, columns=["x", "y"]).points, [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(read(text, columns=["1", "3"]).points, [[1, 2], [3, 4], [5, 6]])


def test_the_header_is_detected_among_the_chosen_columns_so_that_no_row_of_data_is_lost() -> None:
    table = read("1,red,2\n3,blue,4\n", columns=["1", "3"])
    assert table.names is None
    np.testing.assert_array_equal(table.points, [[1, 2], [3, 4]])


def test_whether_years_are_names_must_be_said() -> None:
    text = "country,1960,1961\nAruba,4.5,4.6\nChad,6,5\n"
    for clean in (False, True):
        fix = refusal(text, clean=clean)
        assert "pass --header if row 1 holds names, --no-header if it holds data" in fix
    table = read(text, header=True, clean=True)
    assert table.names == ("1960", "1961") and table.points.shape == (2, 2)
    assert read("1,2,3\n4,5,6\n").names is None, "numbers alone are numbers"


def test_a_declared_header_rules() -> None:
    declared = read("2020,2021\n1,2\n", header=True)
    assert declared.names == ("2020", "2021")
    np.testing.assert_array_equal(declared.points, [[1.0, 2.0]])
    assert read("2020,2021\n1,2\n").points.shape == (2, 2)
    assert "row 1, column 1: 'x' is not a number" in refusal("x,y\n1,2\n", header=False)


@pytest.mark.parametrize("delimiter", [";", "\t", "|", " "])
def test_delimiters(delimiter: str) -> None:
    np.testing.assert_array_equal(
        read(f"x{delimiter}y\n1{delimiter}2\n", delimiter=delimiter).points, [[1.0, 2.0]]
    )


def test_a_comma_is_no_delimiter_once_another_is_given() -> None:
    assert "if ',' stands before the decimals, pass --decimal ','" in refusal(
        "x;y\n1,5;2\n", delimiter=";", decimal="."
    )


# --- what is refused, and where ---


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("1,2\n3\n", "row 2, column 2", "the row has 1 cell, but row 1 has 2 cells"),
        ("1,2\n3,4,5\n", "row 2, column 3", "the row has 3 cells, but row 1 has 2 cells"),
        ("x,y\n1,2\n\n3\n", "row 3, column 1", "the line is empty, but data follow it"),
        ("x,y\n1,2\n3\n", "row 3, column 2 ('y')", "the row has 1 cell"),
        ("\n1,2\n", "row 1, column 1", "the line is empty"),
        ("1,2\n\n\n3,4\n", "row 2, column 1", "the line is empty"),
        ("1,2\n3,abc\n", "row 2, column 2", "'abc' is not a number"),
        ("x,height\n1,2\n3,abc\n", "row 3, column 2 ('height')", "'abc' is not a number"),
        ("1,abc\n3,4\n", "row 1, column 2", "pass --header if row 1 holds names"),
        (
            "1,2\n3,\n",
            "row 2, column 2",
            "the cell is missing; 1 of 2 rows have missing cells (column 2: 1): --drop-missing",
        ),
        ("1,2\n3,1_000\n", "row 2, column 2", "'1_000' is not a number"),
        ("1,2\n3,\u0661\n", "row 2, column 2", "is not a number"),
        ("1,2\n\u00e9,1\n", "row 2, column 1", "is not a number"),
        ("1,2\nnan,4\n", "row 2, column 1", "--exclude 1 drops the columns"),
        ("inf,2\n3,4\n", "row 1, column 1", "'inf' is not finite"),
        ("1,2\n3,-Infinity\n", "row 2, column 2", "'-Infinity' is not finite"),
        ("1,2\n3,1e999\n", "row 2, column 2", "'1e999' is not finite"),
        ("", "row 1, column 1", "the file is empty"),
        ("\n \n", "row 1, column 1", "the file is empty"),
        ("x,y\n", "row 2, column 1", "no row of numbers follows it"),
        ("x,y", "row 2, column 1", "--no-header"),
        (
            ",x\n0,1\n",
            "row 1, column 1",
            "drop it with --exclude 1 or --clean, or choose columns with --columns",
        ),
        (b"\xfe\xff\x00x\x00", "row 1, column 1", "is not UTF-16 text"),
        (
            b"\x93NUMPY\x01\x00",
            "row 1, column 1",
            "is NPY, which cannot be read from the standard input",
        ),
        (b"PK\x03\x04", "row 1, column 1", "archive"),
        (b"\x89KSOS\r\n", "row 1, column 1", "is a model of ksos, not a table"),
        (b"1,2\n3,\x00\n", "row 2, column 2", "NUL byte"),
        (
            "x,température\n1,2\n".encode("latin-1"),
            "row 1, column 2",
            (
                "byte 0xe9 is not UTF-8 text; save the file as UTF-8, or pass --encoding latin-1 if"
                " it is that"
            ),
        ),
        (b'1,2\n"a,b",\xff\n', "row 2, column 2", "byte 0xff"),
        ("1,2\r3,4\r", "row 1, column 2", "bare carriage return"),
        ('1,2\n3,"4\n5"\n', "row 2, column 2", r"'4\n5' is not a number"),
        ('1,2\n3,"4\n5\n', "row 2, column 2", "the quote of this cell is not closed"),
        ('1,2\n"3"4,5\n', "row 2, column 1", "text follows the closing quote"),
        ('1,2\n"a ""b"" c",5\n', "row 2, column 1", "is not a number"),
        ('1,"a,b"c\n', "row 1, column 2", "text follows the closing quote"),
        (f'1,2\n3,"{"4" * 200_000}"\n', "row 2, column 2", "too long to be a number"),
        (f"1,2\n3,{'4' * 200_000}\n", "row 2, column 2", "too long to be a number"),
        (
            "x,y\n1,2\n3;4\n5,6\n",
            "row 3, column 2 ('y')",
            "the row has 1 cell, but row 1 has 2 cells; if ';' separates the cells",
        ),
        (
            "x,y\n1,2\n3 4\n5,6\n",
            "row 3, column 2 ('y')",
            "if spaces separate the cells, pass --delimiter ' '",
        ),
        (
            "x,day\n1,2020-01-31\n",
            "row 2, column 2 ('day')",
            "'2020-01-31' is a date or a time, not a number; drop the column",
        ),
        (
            "x,y,z\n1,a,b\n2,c,d\n",
            "row 2, column 2 ('y')",
            "drop columns of text and dates with --exclude y,z",
        ),
        (
            "x,the y\n1,a\n2,c\n",
            "row 2, column 2 ('the y')",
            "drop the column with --exclude 'the y'",
        ),
        (
            "1,2,a\n3,4,b\n",
            "row 1, column 3",
            "--no-header if it holds data, or --exclude 3 to drop columns of text",
        ),
        (
            'x,y\n1,"1,234"\n',
            "row 2, column 2 ('y')",
            "'1,234' is not a number; if ',' stands before the decimals, pass --decimal ','",
        ),
        (
            "x;y\n1,5;2.345\n",
            "row 2, column 1 ('x')",
            "'1,5' is not a number; if ',' stands before",
        ),
        (
            "1,2\n" + "5," * 1_600_000 + "\n",
            "row 2, column 524289",
            "the line is longer than 1,048,576 bytes",
        ),
        (f"a,b\n1,{'x' * 100}\n", "row 2, column 2 ('b')", "…' is not a number"),
    ],
)
def test_a_fault_is_one_line_with_file_row_and_column(
    text: str | bytes, where: str, what: str
) -> None:
    message = refusal(text)
    assert message.startswith(f"data.csv, {where}: "), message
    assert what in message
    assert len(message) < 300


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"columns": ["z"]}, "has no column 'z'; its columns are 'x', 'y', 'x'"),
        ({"columns": ["4"]}, "has columns 1 to 3; there is no column 4"),
        ({"columns": ["0"]}, "there is no column 0"),
        ({"columns": ["x"]}, "columns 1 and 3 are both named 'x'; choose one by its number"),
        ({"columns": ["y", "2"]}, "y,2 names column 2 twice"),
        ({"columns": ["1", "2"], "weights": "y"}, "cannot be both a feature and the weights"),
        ({"columns": ["y"], "header": False}, "has no header, so there is no column 'y'"),
        ({"exclude": ["z"]}, "has no column 'z'"),
        ({"exclude": ["1", "2", "3"]}, "no column is left for the data"),
    ],
)
def test_columns_that_cannot_be_found(options: dict, what: str) -> None:
    message = refusal("x,y,x\n1,2,3\n", **options)
    assert message.startswith("data.csv") and what in message


def test_weights_alone_leave_nothing() -> None:
    assert "no column is left for the data" in refusal("w\n1\n", weights="w")


def test_a_line_without_end_takes_bounded_memory() -> None:
    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            buffer[:] = b"7" * len(buffer)
            return len(buffer)

    tracemalloc.start()
    with pytest.raises(ValueError, match="row 1, column 1: the line is longer"):
        read_table(io.BufferedReader(Endless()), source="data.csv")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 16 * LONGEST_LINE


def test_an_open_quote_is_found_before_the_file_ends() -> None:
    class Endless(io.RawIOBase):
        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            buffer[:] = (b'1,2\n3,"4\n' + b"5,6\n" * len(buffer))[: len(buffer)]
            self.readinto = self.read_on  # type: ignore[method-assign]
            return len(buffer)

        def read_on(self, buffer: memoryview) -> int:
            buffer[:] = (b"5,6\n" * len(buffer))[: len(buffer)]
            return len(buffer)

    with pytest.raises(ValueError, match=r"row 2, column 2: .* quote closed"):
        read_table(io.BufferedReader(Endless()), source="data.csv")


def test_nothing_global_changes() -> None:
    limit = csv.field_size_limit()
    refusal(f'1,2\n3,"{"4" * 200_000}"\n')
    assert csv.field_size_limit() == limit


@given(st.binary(max_size=60))
def test_any_bytes_give_a_table_or_one_line(raw: bytes) -> None:
    try:
        table = read(raw)
    except ValueError as error:
        assert str(error).startswith(
            ("data.csv, row ", "data.csv is compressed, but cannot be")
        ) and "\n" not in str(error)
    else:
        assert np.isfinite(table.points).all()


@given(
    st.text(alphabet='0123456789.,;"\n\r\t xe-+_é', max_size=40),
    st.sampled_from([None, True, False]),
)
def test_any_text_gives_a_table_or_one_line(text: str, header: bool | None) -> None:
    try:
        table = read(text, header=header)
    except ValueError as error:
        assert str(error).startswith("data.csv, row ") and "\n" not in str(error)
    else:
        lines = text.replace("\r\n", "\n").strip().split("\n")
        assert table.points.shape[0] == len(lines) - (table.names is not None)


# --- files ---


def save(path: Path, array: object) -> str:
    np.save(path, array)
    return str(path)


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", ">f8", "i4", "u8", "?"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy(tmp_path: Path, dtype: str, order: str) -> None:
    X = np.array([[1, 0, 1], [0, 1, 1]]).astype(dtype, order=order)
    table = read_table(save(tmp_path / "x.npy", X))
    assert table.points.dtype == np.float64 and table.names is None and table.weights is None
    np.testing.assert_array_equal(table.points, X.astype(float))
    chosen = read_table(str(tmp_path / "x.npy"), TableOptions(columns=["3", "1"], weights="2"))
    np.testing.assert_array_equal(chosen.points, X[:, [2, 0]].astype(float))
    np.testing.assert_array_equal(chosen.weights, X[:, 1].astype(float))


@pytest.mark.parametrize(
    ("array", "what"),
    [
        (np.zeros(3), "shape (3,), but rows and columns were expected; reshape it to (n, d)"),
        (np.zeros((2, 2, 2)), "shape (2, 2, 2)"),
        (np.float64(3.0), "shape ()"),
        (np.zeros((0, 2)), "shape (0, 2), but rows and columns were expected"),
        (np.zeros((2, 0)), "shape (2, 0)"),
        (np.zeros((2, 2), dtype=complex), "holds complex128, but real numbers were expected"),
        (np.array([["a", "b"]]), "real numbers were expected"),
        (np.zeros((2, 2), dtype="M8[s]"), "real numbers were expected"),
        (
            np.array([[1.0, 2.0], [3.0, np.nan]]),
            "row 2, column 2: the cell is missing; 1 of 2 rows",
        ),
        (np.array([[1.0, -np.inf], [3.0, np.nan]]), "row 1, column 2: -inf is not finite"),
    ],
)
def test_npy_that_is_no_table(tmp_path: Path, array: np.ndarray, what: str) -> None:
    path = save(tmp_path / "x.npy", array)
    with pytest.raises(ValueError) as caught:
        read_table(path)
    assert str(caught.value).startswith(path) and what in str(caught.value)


def test_npy_with_a_fault_in_a_column_that_is_not_chosen(tmp_path: Path) -> None:
    path = save(tmp_path / "x.npy", np.array([[1.0, np.nan], [3.0, 4.0]]))
    np.testing.assert_array_equal(
        read_table(path, TableOptions(columns=["1"])).points, [[1.0], [3.0]]
    )
    with pytest.raises(ValueError, match="row 1, column 2: the cell is missing"):
        read_table(path, TableOptions(columns=["2"]))


def test_npy_with_objects_is_not_unpickled(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple:
            return (pytest.fail, ("unpickled",))

    np.save(tmp_path / "x.npy", np.array([[Bomb()]]), allow_pickle=True)
    with pytest.raises(ValueError, match="not a readable NPY file"):
        read_table(str(tmp_path / "x.npy"))


def test_npy_with_a_forged_shape_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(
            file, {"descr": "<f8", "fortran_order": False, "shape": (10_000_000, 10)}
        )
        file.write(bytes(800))
    tracemalloc.start()
    with pytest.raises(ValueError, match="not a readable NPY file"):
        read_table(str(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 20


@given(st.integers(0, 127), st.integers(0, 255), st.integers(0, 200))
def test_a_damaged_npy_gives_a_table_or_one_error(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int, keep: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.npy"
    np.save(path, np.arange(6.0).reshape(3, 2))
    raw = bytearray(path.read_bytes())
    raw[at] = byte
    path.write_bytes(bytes(raw[: keep or None]))
    try:
        read_table(str(path))
    except ValueError as error:
        assert str(error).startswith(str(path))


def test_a_file_is_npy_by_its_content_or_its_name(tmp_path: Path) -> None:
    path = save(tmp_path / "x.npy", np.ones((1, 2)))
    Path(path).rename(tmp_path / "x.dat")
    np.testing.assert_array_equal(read_table(str(tmp_path / "x.dat")).points, [[1.0, 1.0]])
    (tmp_path / "text.npy").write_text("1,2\n")
    with pytest.raises(ValueError, match="not a readable NPY file"):
        read_table(str(tmp_path / "text.npy"))


@pytest.mark.parametrize(
    "options", [{"header": True}, {"header": False}, {"delimiter": ";"}, {"decimal": ","}]
)
def test_options_for_csv_are_not_ignored_with_npy(tmp_path: Path, options: dict) -> None:
    path = save(tmp_path / "x.npy", np.ones((1, 2)))
    with pytest.raises(ValueError, match="are for CSV"):
        read_table(path, TableOptions(**options))


def test_names_of_columns_need_a_header(tmp_path: Path) -> None:
    path = save(tmp_path / "x.npy", np.ones((1, 2)))
    with pytest.raises(ValueError, match="has no header, so there is no column 'x'"):
        read_table(path, TableOptions(columns=["x"]))


def test_standard_input(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x,y\n1,2\n")))
    np.testing.assert_array_equal(read_table("-").points, [[1.0, 2.0]])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x,y\n1,z\n")))
    with pytest.raises(ValueError, match=r"^<stdin>, row 2, column 2 \('y'\)"):
        read_table("-")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(gzip.compress(b"x,y\n1,2\n"))))
    np.testing.assert_array_equal(read_table("-").points, [[1.0, 2.0]])
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(ValueError, match="no standard input"):
        read_table("-")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be"])
def test_a_byte_order_mark_says_how_text_is_encoded(encoding: str) -> None:
    mark = "" if encoding in ("utf-8-sig", "utf-16") else "\ufeff"
    table = read((mark + "x,température\r\n1,2\r\n3,4\r\n").encode(encoding))
    assert table.names == ("x", "température") and table.points.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    assert read((mark + "1,2\n").encode(encoding)).points.tolist() == [[1.0, 2.0]]


def test_an_encoding_may_be_declared() -> None:
    assert read("x,température\n1,2\n".encode("latin-1"), encoding="latin-1").names == (
        "x",
        "température",
    )
    assert "is not SHIFT_JIS text" in refusal(b"x,\xff\n1,2\n", encoding="shift_jis")


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
def test_compressed_text_is_read(compress: Callable[[bytes], bytes], tmp_path: Path) -> None:
    packed = compress(b"x,y\n1,2\n3,4\n")
    np.testing.assert_array_equal(read(packed).points, [[1.0, 2.0], [3.0, 4.0]])
    (tmp_path / "d.csv.z").write_bytes(packed)
    assert read_table(str(tmp_path / "d.csv.z")).names == ("x", "y")
    assert "data.csv, row 2, column 2 ('y'): 'z' is not a number" in refusal(
        compress(b"x,y\n1,z\n")
    )
    for end in range(8, len(packed)):
        assert "data.csv is compressed, but cannot be decompressed" in refusal(packed[:end])
    assert "is compressed" in refusal(packed[:12] + bytes(len(packed) - 12))


def test_a_folder_and_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no file that can be read"):
        read_table(str(tmp_path))
    with pytest.raises(FileNotFoundError):
        read_table(str(tmp_path / "none.csv"))
