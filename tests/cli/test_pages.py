"""The command lines of README and pages are run, in one folder, one after the other."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ksos import KernelSoSDensity

Command = Callable[..., Any]

ROOT = Path(__file__).resolve().parents[2]


def commands(page: str) -> list[tuple[list[str], str | None]]:
    """The words of every line in a fenced block that begins with ksos; and what the text block
    behind the block shows as the output of its last line.
    """
    text = (ROOT / page).read_text(encoding="utf-8")
    # blocks in a language are matched too, so that their ends are no beginnings
    fences = re.findall(
        r"^```(\w*)\n(.*?)^```$(?:\n+```text\n(.*?)^```$)?", text, re.MULTILINE | re.DOTALL
    )
    found: list[tuple[list[str], str | None]] = []
    for language, block, shown in fences:
        lines = [
            line.split(" > ")[0]  # not the shell's part
            for line in block.splitlines()
            # the explorer serves its page until Ctrl-C
            if not language and line.startswith("ksos ") and not line.startswith("ksos explore ")
        ]
        words = [shlex.split(line, comments=True)[1:] for line in lines]
        found += [(line, None) for line in words]
        if shown and words:
            found[-1] = (words[-1], shown)
    return found


NUMBER = r"[-+]?\d+(?:\.\d+)?(?:e[-+]\d+)?"


def same(printed: str, shown: str) -> bool:
    """Word for word; numbers to a hundredth, and a bound that is tiny only as a tiny one."""
    numbers = [np.array([float(x) for x in re.findall(NUMBER, text)]) for text in (printed, shown)]
    words = [re.sub(NUMBER, "#", text).split() for text in (printed, shown)]
    return words[0] == words[1] and bool(np.allclose(*numbers, rtol=0.01, atol=1e-4))


@pytest.mark.parametrize(
    ("page", "least"),
    [("README.md", 4), ("docs/quickstart.md", 2), ("docs/command-line.md", 20)],
)
def test_the_command_lines_of_a_page(
    ksos: Command, page: str, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    hp = rng.normal(100.0, 30.0, 30).clip(40.0, 220.0)
    mpg = (45.0 - 0.2 * hp + rng.normal(0.0, 2.0, 30)).clip(5.0, 55.0)
    rows = [
        f"car {i},{'NA' if i == 3 else round(a, 1)},{round(b, 2)},{2 + i % 4}"
        for i, (a, b) in enumerate(zip(hp, mpg, strict=True))
    ]
    Path("cars.csv").write_text("\n".join(["name,hp,mpg,doors", *rows]) + "\n")
    Path("new.csv").write_text(
        "\n".join(["doors,mpg,hp", *(f"{2 + i % 4},{20 + i},{90 + i}" for i in range(5))]) + "\n"
    )
    people = pandas.DataFrame({"bmi": 26.0 + rng.normal(size=30), "bp": 94.0 + rng.normal(size=30)})
    KernelSoSDensity().fit(people).distribution_.save("people.ksos")
    Path("data").mkdir()
    for k in range(2):
        columns = {
            "u": rng.normal(size=40),
            "v": rng.normal(size=40),
            "mass": rng.uniform(1.0, 2.0, 40),
        }
        pq.write_table(pa.table(columns), f"data/{k}.parquet")
    lines = commands(page)
    assert len(lines) >= least
    for words, shown in lines:
        done = ksos(*words)
        assert done.code == 0, (words, done.err)
        assert shown is None or same(done.out, shown), (words, done.out)


def test_outputs_are_compared() -> None:
    assert same("P = 0.6412, gap 3e-07\n", "P = 0.641, gap 9e-08")
    assert not same("P = 0.641", "P = 0.741") and not same("P = 0.641", "Q = 0.641")
    assert sum(shown is not None for _, shown in commands("docs/command-line.md")) >= 2
