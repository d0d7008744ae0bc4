"""``ksos compare``: the test of Python, on files, in the words of their columns."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ksos as library

Command = Callable[..., Any]


@pytest.fixture
def tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[np.ndarray, np.ndarray]:
    """old.csv with hp, mpg; new.csv with other columns first, and mpg shifted."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    old, new = (
        rng.normal([100.0, 25.0], [20.0, 4.0], (60, 2)),
        rng.normal([100.0, 31.0], [20.0, 4.0], (50, 2)),
    )
    Path("old.csv").write_text("hp,mpg\n" + "".join(f"{a!r},{b!r}\n" for a, b in old.tolist()))
    Path("new.csv").write_text("mpg,hp\n" + "".join(f"{b!r},{a!r}\n" for a, b in new.tolist()))
    Path("bare.csv").write_text("".join(f"{a!r},{b!r}\n" for a, b in new.tolist()))
    Path("more.csv").write_text(
        "mpg,hp,doors\n" + "".join(f"{b!r},{a!r},4\n" for a, b in new.tolist())
    )
    Path("three.csv").write_text("1,2,3\n4,5,7\n")
    return old, new


def test_it_is_the_test_of_python(ksos: Command, tables: tuple[np.ndarray, np.ndarray]) -> None:
    wanted = library.two_sample_test(*tables, rng=3)
    done = ksos("compare", "old.csv", "new.csv", "--seed", 3, "--json")
    found = json.loads(done.out)
    assert (done.code, done.err) == (0, "")
    assert (found["pvalue"], found["reject"], found["n_rows"], found["features"]) == (
        wanted.pvalue,
        True,
        [60, 50],
        ["hp", "mpg"],
    )
    np.testing.assert_allclose(
        [found["statistic"], found["mmd"]], [wanted.statistic, wanted.mmd], rtol=1e-9
    )
    np.testing.assert_allclose(found["most_of_first"], wanted.most_a.point, rtol=1e-9)
    np.testing.assert_allclose(found["mean_of_second"], tables[1].mean(axis=0), rtol=1e-12)


def test_what_a_reader_sees(ksos: Command, tables: tuple[np.ndarray, np.ndarray]) -> None:
    done = ksos("compare", "old.csv", "new.csv", "--seed", 0, "--permutations", 99)
    pvalue, verdict, head, hp, mpg = done.out.splitlines()
    assert pvalue.startswith("p-value 0.01 of 60 and 50 rows (statistic ") and pvalue.endswith(
        "99 permutations)"
    )
    assert verdict == "at level 0.05: the rows differ"
    assert (
        head.split()[0] == "column"
        and head.endswith("new.csv has more near")
        and hp.split()[0] == "hp"
    )
    _, old, new, more_old, more_new = mpg.split()
    assert float(old) < float(new) and float(more_old) < float(more_new)
    same = ksos("compare", "new.csv", "bare.csv", "--columns", "1,2", "--header", "--seed", 0)
    assert same.code == 1, "the first row of a file without names is no header"
    same = ksos("compare", "old.csv", "old.csv", "--seed", 0)
    assert same.code == 0 and "at level 0.05: no difference is seen" in same.out


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (
            ["old.csv", "more.csv"],
            1,
            "only more.csv has columns 'doors'; compare some with --columns hp,mpg",
        ),
        (
            ["bare.csv", "three.csv"],
            1,
            (
                "bare.csv gives 2 columns, but three.csv gives 3; choose the same number with"
                " --columns"
            ),
        ),
        (["old.csv", "nothing.csv"], 1, "nothing.csv: No such file"),
        (["old.csv", "new.csv", "--weights", "hp"], 2, "unrecognized arguments: --weights"),
        (
            ["old.csv", "new.csv", "--level", "5"],
            2,
            "--level: a number between 0 and 1 was expected",
        ),
        (["-", "-"], 2, "only one of the tables can come from the standard input"),
        (["old.csv", "new.csv", "--permutations", "0"], 2, "--permutations"),
    ],
)
def test_refusals(
    ksos: Command, tables: tuple[np.ndarray, np.ndarray], words: list[str], code: int, message: str
) -> None:
    done = ksos("compare", *words)
    assert (done.code, done.out) == (code, "") and message in done.err and done.err.count("\n") == 1


def test_a_table_without_a_header_is_taken_in_order_with_a_warning(
    ksos: Command, tables: tuple[np.ndarray, np.ndarray]
) -> None:
    done = ksos("compare", "old.csv", "bare.csv", "--seed", 0)
    assert done.code == 0 and "the rows differ" in done.out
    assert "bare.csv has no header: its columns are taken for hp, mpg, in this order" in done.err


def test_tables_with_text_and_gaps(
    ksos: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    for name, share in (("old.csv", 0.5), ("new.csv", 0.9)):
        lines = ["word,x"]
        for number in range(80):
            word = "left" if rng.random() < share else "right"
            lines.append(f"{word},{'' if number % 9 == 0 else round(rng.normal(), 3)}")
        Path(name).write_text("\n".join(lines) + "\n")
    done = ksos("compare", "old.csv", "new.csv", "--seed", 0)
    assert done.code == 0 and "at level 0.05: the rows differ" in done.out
    assert any(line.split()[0] == "word" and "right" in line for line in done.out.splitlines())
    assert "missing cells, each of which stands for all" in done.err
    same = ksos("compare", "old.csv", "old.csv", "--seed", 0, "--drop-missing")
    assert same.code == 0 and "of 71 and 71 rows" in same.out
