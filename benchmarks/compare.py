"""The speed of this tree beside another revision: python benchmarks/compare.py REV [--rounds 3].

The benchmarks run alternately on this tree and on the revision, each tree with its own scripts, on
one BLAS thread, in processes of their own. If a script of the revision fails, that of this tree
runs on the revision's package instead. The least processor time over the rounds counts, as the
scripts report it. Ratios above 1.1 are marked.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from quick import parse, parser_of

ROOT = Path(__file__).resolve().parents[1]
SLOWER = 1.1  # a tenth: what runs on a shared machine differ by when nothing has changed


def _solvers(text: str) -> dict[str, float]:
    rows = json.loads(text)["rows"]
    ours = ("low_rank", "interior_point", "fista", "projected_gradient", "frank_wolfe")
    named = [(row.get("method") or row["contestant"], row) for row in rows]
    return {
        f"{name}, m={row['m']}": row["whole_call"]
        for name, row in named
        if name in ours and row["status"] == "solved" and row["whole_call"]
    }


def _cross_validation(text: str) -> dict[str, float]:
    return {"search": json.loads(text.splitlines()[-1])["together_s"]}


def _worst_case(text: str) -> dict[str, float]:
    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return {
        f"{name}, radius {row['radius']}": row[f"{name}_seconds"]
        for row in rows
        for name in ("worst_case", "ball")
        if f"{name}_seconds" in row
    }


def _sampling(text: str) -> dict[str, float]:
    found = (
        re.match(r"(.+?)\s{2,}(\d+)\s.*?([\d.]+) (?:auto|inversion|rejection|squares)\b", line)
        for line in text.splitlines()
    )
    return {f"{match[1]}, d={match[2]}": float(match[3]) for match in found if match}


def _evaluation(text: str) -> dict[str, float]:
    return {
        name: float(seconds) for name, seconds in re.findall(r"^(p\.\w+) +([\d.]+) s", text, re.M)
    }


BENCHMARKS: dict[str, tuple[list[str], Callable[[str], dict[str, float]]]] = {
    "solvers": (["--quick", "--clock", "cpu", "--json"], _solvers),
    "cross_validation": (["--separate", "1"], _cross_validation),
    "worst_case": (["--without-cvxpy"], _worst_case),
    "sampling": (["--quick"], _sampling),
    "evaluation": ([], _evaluation),
}
"""The words for each benchmark, and how to read the seconds from what it prints."""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def seconds(name: str, tree: Path, quick: bool) -> dict[str, float]:
    """What one benchmark reports of one tree."""
    words, read = BENCHMARKS[name]
    words = [*words, "--quick"] if quick else words
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(tree / "src")}
    errors = ""
    for scripts in (tree, ROOT):
        with tempfile.TemporaryDirectory() as output:
            more = ["--output", output] if name == "solvers" else []
            done = subprocess.run(
                [sys.executable, str(scripts / "benchmarks" / f"{name}.py"), *words, *more],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
            )
        # Some scripts also exit with 1 when a time that they were asked for is missed.
        if found := read(done.stdout) if done.stdout else {}:
            return found
        errors = done.stderr.strip().splitlines()[-1] if done.stderr else "no times printed"
    print(f"{name} failed in {tree}: {errors}", file=sys.stderr)
    return {}


def compare(base: str, rounds: int, chosen: list[str], quick: bool = False) -> Iterator[str]:
    """The ratios of the times on this tree to those on the revision ``base``, as lines of text."""
    yield (
        f"seconds of processor time, one BLAS thread, the least of {rounds} rounds, this tree and"
        f" {base} in turn"
    )
    with tempfile.TemporaryDirectory() as folder:
        archive = subprocess.run(
            ["git", "archive", base], cwd=ROOT, capture_output=True, check=True
        )
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        trees = {"here": ROOT, "base": Path(folder)}
        for name in chosen:
            best: dict[str, dict[str, float]] = {"here": {}, "base": {}}
            for _ in range(rounds):
                for side, tree in trees.items():
                    for key, value in seconds(name, tree, quick).items():
                        best[side][key] = min(value, best[side].get(key, value))
            yield name
            yield from ratios(best["here"], best["base"])


def ratios(here: dict[str, float], base: dict[str, float]) -> Iterator[str]:
    """One line for each time that both sides have, and one for those of one side only."""
    for key in [key for key in base if key in here]:
        ratio = here[key] / base[key] if base[key] else float("nan")
        marked = "  slower" if ratio > SLOWER else ""
        yield f"  {key:36}{here[key]:9.4f} {base[key]:9.4f}  ratio {ratio:5.2f}{marked}"
    if alone := set(base) ^ set(here):
        yield f"  only on one side: {', '.join(sorted(alone))}"


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("base", metavar="REV", nargs="?", default="HEAD", help="default: HEAD")
    parser.add_argument(
        "--rounds",
        type=int,
        default=3,
        help="of each benchmark on each tree (default: %(default)s)",
    )
    parser.add_argument(
        "--benchmark",
        action="append",
        choices=list(BENCHMARKS),
        metavar="NAME",
        help="only these (default: all)",
    )
    options = parse(parser, rounds=1, benchmark=["evaluation"])
    for line in compare(
        options.base, options.rounds, options.benchmark or list(BENCHMARKS), options.quick
    ):
        print(line, flush=True)


if __name__ == "__main__":
    main()
