"""Delimiters, decimals, missing cells, indices and text in CSV files: detected, refused with the
remedy, or left out, and said.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from csv_reading import read, refusal

from ksos.data import TableOptions, read_table


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x,y\n1.5,2\n3,4\n", []),
        ("x;y\n1.5;2\n3;4\n", ["';'"]),
        ("x;y\n1,5;2\n3;4\n", ["';'", "comma"]),
        ('"x","y"\n"1,5","2"\n"3","4"\n', ["comma"]),
        ("x\ty\n1.5\t2\n3\t4\n", ["tabs"]),
        ("x|y\n1.5|2\n3|4\n", ["'|'"]),
        ("x   y\n 1.5  2 \n3 4\n", ["spaces"]),
        ("x y\n1,5 2\n3 4\n", ["spaces", "comma"]),
        ("1.5;2\n3;4\n", ["';'"]),
    ],
)
def test_delimiters_and_decimals_are_detected_and_said(text: str, said: list[str]) -> None:
    lines: list[str] = []
    np.testing.assert_array_equal(read(text, lines).points, [[1.5, 2.0], [3.0, 4.0]])
    assert len(lines) == len(said) and all(
        line.startswith("data.csv: ") and word in line
        for line, word in zip(lines, said, strict=True)
    )
    assert all(("--delimiter" in line) != ("--decimal" in line) for line in lines), (
        "the option that overrules it"
    )


def test_what_is_given_is_not_detected() -> None:
    said: list[str] = []
    assert read("x;y\n1,5;2,5\n", said, delimiter=";", decimal=",").points.tolist() == [[1.5, 2.5]]
    assert said == []
    assert "'1,5' is not a number" in refusal("x;y\n1,5;2\n", decimal=".")
    assert "'1.5' is not a number; if '.' stands before the decimals" in refusal(
        "x;y\n1.5;2\n", decimal=","
    )
    assert read('x;y\n"1,500";2\n', delimiter=";", decimal=",").points.tolist() == [[1.5, 2.0]]


@pytest.mark.parametrize(
    "cell", ["", " ", "NA", "n/a", "#N/A", "NaN", "nan", "null", "None", "?", "-", "."]
)
def test_rows_with_missing_cells_are_refused_or_left_out_and_counted(cell: str) -> None:
    text = f"x,y,w\n1,2,a\n3,{cell},b\n5,6,c\n{cell},{cell},d\n7,8,e\n"
    message = refusal(text, exclude=["w"])
    assert (
        message
        == "data.csv, row 3, column 2 ('y'): the cell is missing; 2 of 5 rows have missing cells"
        " (column 2 ('y'): 2, column 1 ('x'): 1): --drop-missing drops the rows, --exclude"
        " x,y drops the columns"
    )
    said: list[str] = []
    table = read(text, said, exclude=["w"], drop_missing=True)
    assert table.points.tolist() == [[1, 2], [5, 6], [7, 8]] and table.rows.tolist() == [2, 4, 6]
    assert said == [
        "data.csv: dropped 2 of 5 rows, which have missing cells (column 2 ('y'): 2, column 1"
        " ('x'): 1)"
    ]


def test_a_table_with_nothing_but_missing_rows_is_refused() -> None:
    assert refusal("x,y\n1,\n2,\n", drop_missing=True).endswith(
        "2 of 2 rows have missing cells (column 2 ('y'): 2): --exclude y drops the columns"
    )


@pytest.mark.parametrize("start", [0, 1])
def test_a_column_that_counts_the_rows_is_refused_with_the_remedy(start: int) -> None:
    rows = [f"{i + start},{(i * 7) % 11},{'' if i == 3 else i * i}" for i in range(12)]
    message = refusal("\n".join(["id,x,y", *rows]), drop_missing=True)
    assert (
        message.startswith("data.csv, column 1 ('id'): it counts the rows")
        and "--exclude id" in message
        and "--columns" in message
    )
    assert read("\n".join(["id,x,y", *rows]), exclude=["id"], drop_missing=True).points.shape == (
        11,
        2,
    )
    assert read("\n".join(["id,x,y", *rows]), columns=["id", "x"]).points.shape == (12, 2)
    assert read("\n".join(["id,x", *(f"{i + 5},{i % 3}" for i in range(12))])).points.shape == (
        12,
        2,
    )


def test_clean_leaves_out_what_does_not_belong_and_says_so() -> None:
    rows = [
        f'{i},"n, {i}",{i % 7},2020-01-{i + 1:02d},{"NA" if i == 4 else i * i},{i if i < 3 else ""}'
        for i in range(12)
    ]
    text, said = "\n".join([",name,x,day,y,z", *rows]), []
    assert "--clean" in refusal(text) and "--exclude name,day, or with --clean" in refusal(
        text, exclude=["1"]
    )
    table = read(text, said, clean=True)
    assert (
        table.names == ("x", "y")
        and table.points.shape == (11, 2)
        and table.rows.tolist() == [2, 3, 4, 5, *range(7, 14)]
    )
    assert said == [
        "data.csv: dropped columns of text or dates: column 2 ('name'), column 4 ('day')",
        "data.csv: dropped columns without a name: column 1 ('')",
        "data.csv: dropped columns with most cells missing: column 6 ('z')",
        "data.csv: dropped 1 of 12 rows, which have missing cells (column 5 ('y'): 1)",
    ]
    said.clear()
    assert read(
        "\n".join(["id,x", *(f"{i},{i % 5}" for i in range(12))]), said, clean=True
    ).names == ("x",)
    assert said == ["data.csv: dropped columns that count the rows: column 1 ('id')"]
    said.clear()
    iris = "5.1,3.5,setosa\n4.9,3.0,setosa\n"
    assert read(iris, said, clean=True, header=False).points.shape == (2, 2)
    assert "column 3" in said[0] and "--no-header if it holds data" in refusal(iris, clean=True)
    assert "no column is left" in refusal("a,b\nx,y\n", clean=True)
    assert "correct the cell" in refusal("a,b\n1,2\n2,3\n5,x\n", clean=True), (
        "a column of numbers is not given up for one cell"
    )


def test_quoted_cells_may_hold_delimiters_and_line_breaks() -> None:
    table = read('"name","x"\n"Smith, ""J""\nJunior","1"\n"b",2\n', exclude=["name"])
    assert (
        table.names == ("x",)
        and table.points.tolist() == [[1.0], [2.0]]
        and table.rows.tolist() == [2, 3]
    )


def test_blocks_are_put_together(tmp_path: Path) -> None:
    """Longer than what is read at a time, with rows of every kind in between: as if each row had
    been read alone.
    """
    X = np.random.default_rng(0).normal(size=(9000, 5)).round(6)
    lines = [",".join(map(repr, row)) for row in X.tolist()]
    lines[4000], lines[7000] = (
        ",".join(f'"{x!r}"' for x in X[4000].tolist()),
        lines[7000].replace(",", ",  "),
    )
    lines[8000] = lines[8000].rpartition(",")[0] + ",NA"
    path = tmp_path / "x.csv"
    path.write_text("\n".join(lines))
    assert path.stat().st_size > 3 * (1 << 17)
    kept = np.arange(9000) != 8000
    table = read_table(str(path), TableOptions(drop_missing=True))
    np.testing.assert_array_equal(table.points, X[kept])
    np.testing.assert_array_equal(table.rows, np.arange(1, 9001)[kept])


def test_lines_of_comment_are_left_out_and_said_and_a_title_is_told() -> None:
    said: list[str] = []
    table = read("# station 42, of 50, made in May\n# second\nx,y\n1,2\n3,4\n", said)
    assert table.names == ("x", "y") and table.rows.tolist() == [4, 5]
    assert said == [
        "data.csv: 2 lines of comment at the beginning, '# station 42, of 50, made in May', dropped"
    ]
    assert refusal("# station\nx,,y\n1,2,3\n4,5,6\n").startswith(
        "data.csv, row 2, column 2: the header gives it no name"
    )
    assert refusal("Age,Size\n1,2\n", columns=["age"]).endswith(
        "its columns are 'Age', 'Size'; did you mean 'Age'?"
    )
    assert read("#x,y\n1,2\n3,4\n").names == ("#x", "y")  # as many cells as the others: names
    assert refusal("Report of May\nx,y\n1,2\n3,4\n").endswith("; if row 1 is a title, remove it")


@pytest.mark.parametrize("cell", ["$12.04", "7%", "7 %", "12 €", '"1,234.50"', "1'234"])
def test_numbers_for_people_alone_are_named(cell: str) -> None:
    text = f"x,y\n1,{cell}\n2,{cell}\n3,{cell}\n"
    assert (
        "has signs of thousands, currency or percent, which are not read; take them away"
        in refusal(text)
    )
    said: list[str] = []
    assert read(text, said, clean=True).names == ("x",)
    assert said == [
        "data.csv: dropped columns of numbers with signs of thousands, currency or percent: column"
        " 2 ('y')"
    ]
