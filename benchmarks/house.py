"""The shape of the source in numbers, and its speed beside another revision: python
benchmarks/house.py [--base REV] [--rounds 3].

Without options: statements and files, by package; small files; imports of another package's private
modules; ``isinstance`` over measures; patches of private names in the tests; places that share 12
lines or more. With ``--base REV`` the benchmarks also run, alternately on this tree and on that
revision, each tree with its own scripts, one BLAS thread, in processes of their own. The least
processor time over the rounds counts, as the scripts report it; ratios above 1.1 are marked.
"""

from __future__ import annotations

import argparse
import ast
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "ksos"

MEASURES = {"Box", "Discrete", "GaussianMixture", "Lebesgue", "Normal"}
SHARED_LINES = 12
# Statements are counted by ast, so that no layout hides anything; budgets fall, and are not raised.
LIMITS = {
    "statements": 28_800,
    "files": 250,
    "lines of a file": 900,
}
_RULE = re.compile(r"(leg|herm|herme|lag|cheb)gauss|roots_\w+|fixed_quad|newton_cotes")


# --- what is there ---


def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def count_lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


def package(file: Path) -> str:
    """The folder of src/ksos that a file lies in; "" for the files beside the folders."""
    parts = file.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


def sizes() -> dict[str, tuple[int, int]]:
    """(files, statements) of every package."""
    found: dict[str, tuple[int, int]] = {}
    for file in files(SOURCE):
        n, statements = found.get(package(file), (0, 0))
        found[package(file)] = n + 1, statements + count_statements(file)
    return found


def count_statements(file: Path) -> int:
    """Statements of the syntax tree, however they are laid out."""
    return sum(
        isinstance(node, ast.stmt) for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    )


def nodes(folder: Path) -> Iterator[tuple[Path, ast.AST]]:
    """Every node of the syntax tree of every file."""
    for file in files(folder):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            yield file, node


def at(file: Path, node: ast.AST, what: str) -> str:
    return f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {what}"


# --- what should not be there ---


def private_imports() -> list[str]:
    """Imports of a private module, or of a private name, of another package; ``ksos._name``, beside
    the packages, is for all.
    """
    found = []
    for file, node in nodes(SOURCE):
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if (
                parts[0] == "ksos"
                and parts[1:2] != [package(file)]
                and is_private(".".join(parts[2:]))
            ):
                found.append(at(file, node, name))
    return found


def measure_checks() -> list[str]:
    """``isinstance`` over classes of measures outside of measures/ and integrals/: what differs is
    asked of the measure.
    """
    found = []
    for file, node in nodes(SOURCE):
        if package(file) in ("measures", "integrals"):
            continue
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("isinstance", "issubclass")
        ):
            classes = {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
            classes |= {
                part.attr for part in ast.walk(node.args[1]) if isinstance(part, ast.Attribute)
            }
            if classes & MEASURES:
                found.append(at(file, node, ast.unparse(node)))
    return found


def shortcuts() -> list[str]:
    """Objects made without their ``__init__``, copied ``__dict__``, ``getattr`` with a default on a
    space, subclasses of SoSSpace.
    """
    found = []
    for file, node in nodes(SOURCE):
        if isinstance(node, ast.Attribute) and (
            node.attr == "__dict__" or ast.unparse(node) == "object.__new__"
        ):
            found.append(at(file, node, ast.unparse(node)))
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "hasattr")
        ):
            defaulted = node.func.id == "hasattr" or len(node.args) == 3
            if (
                defaulted
                and "space" in ast.unparse(node.args[0]).lower()
                and "namespace" not in ast.unparse(node.args[0]).lower()
            ):
                found.append(at(file, node, ast.unparse(node)))
        elif isinstance(node, ast.ClassDef) and any(
            "SoSSpace" in ast.unparse(base) for base in node.bases
        ):
            found.append(
                at(file, node, f"class {node.name}({', '.join(map(ast.unparse, node.bases))})")
            )
    return found


def rules() -> list[str]:
    """Rules of quadrature made anywhere but in quadrature/."""
    found = []
    for file, node in nodes(SOURCE):
        name = (
            node.attr
            if isinstance(node, ast.Attribute)
            else node.name
            if isinstance(node, ast.alias)
            else ""
        )
        if _RULE.fullmatch(name.rpartition(".")[2]) and package(file) != "quadrature":
            found.append(at(file, node, name))
    return found


def is_private(name: str) -> bool:
    """Whether a part of a dotted name is private; names with two underscores belong to Python.

    >>> is_private("ksos.ground.memory.available_memory"), is_private("builtins.__import__")
    (True, False)
    """
    return any(
        part.startswith("_") and not part.startswith("__") for part in re.split(r"[^\w]+", name)
    )


def private_patches() -> list[str]:
    """``monkeypatch.setattr`` of a private name, or of a name in a private module, in the tests."""
    found = []
    for file, node in nodes(ROOT / "tests"):
        if not (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "setattr"
            and node.args
        ):
            continue
        target = " ".join(
            ast.unparse(argument)
            for argument in node.args[:2]
            if not isinstance(argument, ast.Lambda)
        )
        if is_private(target):
            found.append(at(file, node, target))
    return found


def counted_lines(file: Path) -> list[tuple[int, str]]:
    """The lines that say something, with their numbers: no blank lines, comments, imports or lists
    of names.
    """
    text = file.read_text(encoding="utf-8")
    skipped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        lists_names = isinstance(node, ast.Assign) and any(
            ast.unparse(target) == "__all__" for target in node.targets
        )
        if isinstance(node, ast.Import | ast.ImportFrom) or lists_names:
            skipped.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = (
        (number, " ".join(line.split("#")[0].split()))
        for number, line in enumerate(text.splitlines(), 1)
        if number not in skipped
    )
    return [(number, line) for number, line in lines if line]


def shared_lines(least: int = SHARED_LINES) -> list[str]:
    """Pairs of places that share a run of ``least`` lines or more."""
    texts = {file: counted_lines(file) for file in files(SOURCE)}
    places: dict[tuple[str, ...], list[tuple[Path, int]]] = collections.defaultdict(list)
    for file, lines in texts.items():
        for i in range(len(lines) - least + 1):
            places[tuple(line for _, line in lines[i : i + least])].append((file, i))
    pairs = {
        (a, b)
        for found in places.values()
        for k, a in enumerate(found)
        for b in found[k + 1 :]
        if a[0] != b[0] or b[1] - a[1] >= least
    }
    starts = [(a, b) for a, b in pairs if ((a[0], a[1] - 1), (b[0], b[1] - 1)) not in pairs]
    found = []
    for a, b in sorted(starts):
        length = least
        while ((a[0], a[1] + length - least + 1), (b[0], b[1] + length - least + 1)) in pairs:
            length += 1
        where = " and ".join(f"{file.relative_to(ROOT)}:{texts[file][i][0]}" for file, i in (a, b))
        found.append(f"{where}: {length} lines")
    return found


def offenders() -> dict[str, list[str]]:
    """Everything that should be empty, by name."""
    return {
        "imports of another package's private modules": private_imports(),
        "isinstance over measures": measure_checks(),
        "objects made around their constructors, and questions by getattr": shortcuts(),
        "quadrature rules outside of quadrature/": rules(),
        "patches of private names in the tests": private_patches(),
        f"places that share {SHARED_LINES} lines or more": shared_lines(),
    }


def report() -> Iterator[str]:
    """The numbers as lines of text."""
    lines = {file: count_lines(file) for file in files(SOURCE)}
    total = sum(n for _, n in sizes().values())
    yield (
        f"{total} statements (at most {LIMITS['statements']}) in {len(lines)} files (at most"
        f" {LIMITS['files']})"
    )
    yield (
        f"files of at most 40 lines: {sum(n <= 40 for n in lines.values())}, of at most 50:"
        f" {sum(n <= 50 for n in lines.values())}"
    )
    most = max(lines, key=lambda file: lines[file])
    yield (
        f"longest file: {most.relative_to(ROOT)}, {lines[most]} lines (at most"
        f" {LIMITS['lines of a file']})"
    )
    for name, (n, total) in sorted(sizes().items()):
        yield f"  {name or '(beside the packages)':24}{n:4} files {total:6} statements"
    for name, found in offenders().items():
        yield f"{name}: {len(found)}"
        yield from (f"  {one}" for one in found)


# --- speed beside another revision ---


def _bench(text: str) -> dict[str, float]:
    rows = json.loads(text)["rows"]
    ours = [
        row
        for row in rows
        if row["contestant"]
        in ("low_rank", "interior_point", "fista", "projected_gradient", "frank_wolfe")
    ]
    return {
        f"{row['contestant']}, m={row['m']}": row["whole_call"]
        for row in ours
        if row["status"] == "solved" and row["whole_call"]
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
        re.match(r"(.+?)\s{2,}(\d+)\s.*?([\d.]+) (?:inversion|rejection)\b", line)
        for line in text.splitlines()
    )
    return {f"{match[1]}, d={match[2]}": float(match[3]) for match in found if match}


BENCHMARKS: dict[str, tuple[list[str], Callable[[str], dict[str, float]]]] = {
    "ksos bench --quick": (["-m", "ksos", "bench", "--quick", "--clock", "cpu", "--json"], _bench),
    "cross_validation.py": (
        ["benchmarks/cross_validation.py", "--separate", "1"],
        _cross_validation,
    ),
    "worst_case.py": (["benchmarks/worst_case.py", "--without-cvxpy"], _worst_case),
    "sampling.py": (["benchmarks/sampling.py", "--quick"], _sampling),
}
"""How to run each benchmark, and how to read the seconds from what it prints."""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def seconds(name: str, tree: Path) -> dict[str, float]:
    """What one benchmark says of one tree."""
    words, read = BENCHMARKS[name]
    environment = {**os.environ, **ONE_THREAD, "PYTHONPATH": str(tree / "src")}
    with tempfile.TemporaryDirectory() as output:
        more = ["--output", output] if "bench" in words else []
        done = subprocess.run(
            [sys.executable, *words, *more],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        print(f"{name} failed in {tree}: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return {}
    return read(done.stdout)


def compare(base: str, rounds: int, chosen: list[str]) -> Iterator[str]:
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
                    for key, value in seconds(name, tree).items():
                        best[side][key] = min(value, best[side].get(key, value))
            yield name
            for key in [key for key in best["base"] if key in best["here"]]:
                here, there = best["here"][key], best["base"][key]
                ratio = here / there if there else float("nan")
                yield (
                    f"  {key:36}{here:9.4f} {there:9.4f}  ratio"
                    f" {ratio:5.2f}{'  slower' if ratio > 1.1 else ''}"
                )
            missing: Any = set(best["base"]) ^ set(best["here"])
            if missing:
                yield f"  only on one side: {', '.join(sorted(missing))}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--base", metavar="REV", help="compare the speed with this revision")
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
    arguments = parser.parse_args()
    for line in report():
        print(line)
    if arguments.base is not None:
        for line in compare(
            arguments.base, arguments.rounds, arguments.benchmark or list(BENCHMARKS)
        ):
            print(line, flush=True)


if __name__ == "__main__":
    main()
