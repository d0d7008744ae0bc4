"""The architecture in numbers, beside its budgets: python benchmarks/architecture.py [--quick].

Statements are counted by ``ast``, so that no layout hides anything, and so are the nodes of the
syntax tree, so that nothing is gained by packing statements. The rules that are kept one by one
(one idea per file, a reason beside every number, tests that import from packages, …) are listed
with every place that breaks them. ``--quick`` leaves out the walks, which fit a density.
"""

from __future__ import annotations

import ast
import collections
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

from quick import parse, parser_of

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src" / "ksos"

FIRST = {
    ("ground",): 1339,
    ("data",): 1500,
    ("kernels", "measures", "integrals", "quadrature", "observables"): 3636,
    ("density",): 3300,
    ("space",): 1825,
    ("functionals",): 950,
    ("solvers",): 2250,
    ("robust",): 1700,
    ("choose",): 1400,
    ("estimators",): 1900,
    ("adapters",): 0,
    ("cli",): 1200,
    ("plotting",): 650,
    ("explorer",): 550,
}
"""Statements that each room of src/ksos may have for densities, conditional densities, worst cases,
streams, the command line and the explorer: the floor plan. Roots of kernel matrices, 61 and 75
statements of ground/ and space/, lie in kernels/.
"""

ADDED = {
    "decisions": {
        ("robust",): 670,
        ("kernels", "measures", "integrals", "quadrature", "observables"): 180,
        ("estimators",): 150,
    },
    "columns of any kind": {
        ("data",): 400,
        ("density",): 500,
        ("choose",): 350,
        ("estimators",): 150,
        ("cli",): 100,
        ("plotting",): 50,
        ("explorer",): 50,
    },
    "other libraries": {
        ("adapters",): 450,
        ("density",): 100,
        ("estimators",): 100,
        ("space",): 50,
    },
}
"""What a capability may add to the rooms. No budget is raised for an overrun."""

BUDGETS = {
    room: most + sum(rooms.get(room, 0) for rooms in ADDED.values()) for room, most in FIRST.items()
}
"""Statements that each room of src/ksos may have."""

MOST: dict[str, int] = {
    "statements": 22_200 + sum(sum(rooms.values()) for rooms in ADDED.values()),
    # 315,000 for the floor plan, and as many for a statement of what was added
    "nodes of the syntax tree": 315_000 + 14 * sum(sum(rooms.values()) for rooms in ADDED.values()),
    "files": 175 + 28,
    "public members of SoSDensity": 40,
    "parameters of KernelSoSDensity": 20,
    "parameters of worst_case": 12,
    "files that KernelSoSDensity().fit(X) runs through": 35,
    "files that ksos fit cars.csv runs through": 55,
}
"""What the whole may have at most."""

COLUMNS = 100
LONGEST_FILE = 900
SHORTEST_FILE = 80  # lines; a shorter file needs more than one importer
COMMENTS_PER_100_STATEMENTS = 4.0

MEASURES = {"Box", "Discrete", "GaussianMixture", "Lebesgue", "Normal"}
SHARED_LINES = 12
_RULE = re.compile(r"(leg|herm|herme|lag|cheb)gauss|roots_\w+|fixed_quad|newton_cotes")


@cache
def files(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


@cache
def tree(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def count_lines(file: Path) -> int:
    return len(file.read_text(encoding="utf-8").splitlines())


@cache
def package(file: Path) -> str:
    """The folder of src/ksos that a file lies in; "" for the files beside the folders."""
    parts = file.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else ""


@cache
def nodes(folder: Path) -> list[tuple[Path, ast.AST]]:
    """Every node of the syntax tree of every file."""
    return [(file, node) for file in files(folder) for node in ast.walk(tree(file))]


def at(file: Path, node: ast.AST, what: str) -> str:
    return f"{file.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {what}"


def statements() -> dict[str, int]:
    """Statements of every folder of src/ksos."""
    found: collections.Counter[str] = collections.Counter()
    for file, node in nodes(SOURCE):
        found[package(file)] += isinstance(node, ast.stmt)
    return dict(found)


def rooms() -> dict[tuple[str, ...], int]:
    """Statements of every room of the floor plan."""
    found = statements()
    return {room: sum(found.get(name, 0) for name in room) for room in BUDGETS}


def sizes() -> dict[str, int]:
    """The counts of :data:`MOST` that the text alone gives."""
    return {
        "statements": sum(statements().values()),
        "nodes of the syntax tree": len(nodes(SOURCE)),
        "files": len(files(SOURCE)),
    }


def interface() -> dict[str, int]:
    """The counts of :data:`MOST` that the public objects give."""
    import ksos

    called = {"KernelSoSDensity": ksos.KernelSoSDensity, "worst_case": ksos.worst_case}
    return {
        "public members of SoSDensity": sum(
            not name.startswith("_") for name in dir(ksos.SoSDensity)
        ),
        **{
            f"parameters of {name}": len(inspect.signature(one).parameters)
            for name, one in called.items()
        },
    }


_WALKS = {
    "KernelSoSDensity().fit(X)": """
import numpy as np, ksos
X = np.random.default_rng(0).normal(size=(60, 2))
call = lambda: ksos.KernelSoSDensity().fit(X)
""",
    "ksos fit cars.csv": """
import numpy as np
from ksos.cli import main
rng = np.random.default_rng(0)
hp = rng.uniform(50.0, 200.0, 200)
mpg = 20.0 + 10.0 * np.sin(hp / 20.0) + rng.normal(0.0, 2.0, 200)
np.savetxt("cars.csv", np.stack([hp, mpg], axis=1), delimiter=",", header="hp,mpg", comments="")
call = lambda: main(["fit", "cars.csv", "-o", "cars.ksos"])
""",
}
"""Each program ends with the function whose walk is counted."""

_WALK = """
import json, sys, threading
importing, seen = 0, set()
def see(frame, event, argument):
    global importing
    code = frame.f_code
    if code.co_name == "<module>":
        importing += (event == "call") - (event == "return")
    elif event == "call" and not importing and code.co_filename.startswith(SOURCE):
        seen.add(code.co_filename)
threading.setprofile(see)
sys.setprofile(see)
call()
sys.setprofile(None)
print(json.dumps(sorted(seen)))
"""
"""Files of which a function runs, apart from what runs because a module is imported."""


def walks() -> dict[str, list[str]]:
    """The files of src/ksos that each walk runs through."""
    found = {}
    for name, program in _WALKS.items():
        source = f"{SOURCE}{os.sep}"
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-c", f"SOURCE = {source!r}\n{program}{_WALK}"],
                cwd=folder,
                env={**os.environ, "PYTHONPATH": str(SOURCE.parent)},
                capture_output=True,
                text=True,
                check=True,
            )
        walked = json.loads(done.stdout.splitlines()[-1])
        found[f"files that {name} runs through"] = [file.removeprefix(source) for file in walked]
    return found


def wide_lines() -> list[str]:
    """Lines of more than 100 columns."""
    return [
        f"{file.relative_to(ROOT)}:{number}: {len(line)} columns"
        for name in ("src", "tests", "benchmarks", "examples", "tools")
        for file in files(ROOT / name)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
        if len(line) > COLUMNS
    ]


def bare_numbers() -> list[str]:
    """Module-level numbers without a comment or a docstring beside them.

    A comment stands on a line of the assignment or right above it, a docstring right below.
    Several names that are assigned at once cannot each have a reason, and always count.
    """
    found = []
    for file in files(SOURCE):
        lines = [*file.read_text(encoding="utf-8").splitlines(), ""]
        commented = {number for number, _ in comments(file)}
        for node in tree(file).body:
            if not isinstance(node, ast.Assign | ast.AnnAssign) or not has_number(node.value):
                continue
            last = node.end_lineno or node.lineno
            explained = commented & {node.lineno - 1, *range(node.lineno, last + 1)}
            explained = explained or re.match(r'\s*r?"""', lines[last])
            packed = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)
            if packed or not explained:
                target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                found.append(at(file, node, ast.unparse(target)))
    return found


def has_number(node: ast.AST | None) -> bool:
    """Whether a number is set here: those in a function or an index are part of a formula."""
    if node is None or isinstance(node, ast.Lambda):
        return False
    if isinstance(node, ast.Constant):
        return isinstance(node.value, int | float) and not isinstance(node.value, bool)
    if isinstance(node, ast.Subscript):
        return has_number(node.value)
    return any(has_number(child) for child in ast.iter_child_nodes(node))


@cache
def comments(file: Path) -> list[tuple[int, str]]:
    """The number and the text of every comment, own line or not."""
    with file.open("rb") as stream:
        return [
            (token.start[0], token.line.strip())
            for token in tokenize.tokenize(stream.readline)
            if token.type == tokenize.COMMENT
        ]


def own_line_comments() -> list[str]:
    """Comments that have a line of their own, apart from instructions to tools."""
    instruction = re.compile(r"#\s*(noqa|type:|fmt:|ruff:|mypy:)")
    return [
        text
        for file in files(SOURCE)
        for _, text in comments(file)
        if text.startswith("#") and not instruction.match(text)
    ]


def banners() -> list[str]:
    """Comments that divide a file instead of explaining it."""
    return [
        f"{file.relative_to(ROOT)}:{number}: {text}"
        for file in files(SOURCE)
        for number, text in comments(file)
        if re.match(r"#\s*[-=#*]{3}", text)
    ]


def modules() -> dict[str, Path]:
    """The modules of ksos by their dotted names; of a package, its ``__init__``."""
    found = {}
    for file in files(SOURCE):
        parts = ("ksos", *file.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports(file: Path) -> Iterator[tuple[ast.stmt, str]]:
    """Every dotted name that a file imports anywhere, with the statement."""
    for node in ast.walk(tree(file)):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                yield node, f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name


def files_out_of_proportion() -> list[str]:
    """Files of more than 900 lines, and of fewer than 80 that a single other file imports."""
    known = modules()
    importers: dict[str, set[Path]] = collections.defaultdict(set)
    for file in known.values():
        for _, name in imports(file):
            importers[name if name in known else name.rpartition(".")[0]].add(file)
    found = []
    for name, file in known.items():
        n = count_lines(file)
        alone = len(importers[name] - {file}) == 1 and file.name != "__init__.py"
        if n > LONGEST_FILE or (alone and n < SHORTEST_FILE):
            found.append(f"{file.relative_to(ROOT)}: {n} lines{', one importer' * alone}")
    for name in ("tests", "benchmarks", "examples"):
        long = [file for file in files(ROOT / name) if count_lines(file) > LONGEST_FILE]
        found += [f"{file.relative_to(ROOT)}: {count_lines(file)} lines" for file in long]
    return found


def inner_imports_of_tests() -> list[str]:
    """Imports in the tests of a file inside a package: tests import from packages, so that files
    can move.
    """
    inner = {
        name
        for name, file in modules().items()
        if name.count(".") > 1 and file.name != "__init__.py"
    }
    return [
        at(file, node, name)
        for file in files(ROOT / "tests")
        for node, name in imports(file)
        if name in inner or name.rpartition(".")[0] in inner
    ]


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

    >>> is_private("ksos.ground._memory.available"), is_private("builtins.__import__")
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
    for node in ast.walk(tree(file)):
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


RULES: dict[str, Callable[[], list[str]]] = {
    f"lines of more than {COLUMNS} columns": wide_lines,
    "module-level numbers without a reason beside them": bare_numbers,
    "banner comments": banners,
    "files that are too long, or short and used once": files_out_of_proportion,
    "imports from a file inside a package in the tests": inner_imports_of_tests,
    "imports of another package's private modules": private_imports,
    "isinstance over measures": measure_checks,
    "objects made around their constructors, and questions by getattr": shortcuts,
    "quadrature rules outside of quadrature/": rules,
    "patches of private names in the tests": private_patches,
    f"places that share {SHARED_LINES} lines or more": shared_lines,
}
"""Each rule with the function that finds the places that break it."""


def report(quick: bool) -> Iterator[str]:
    """The numbers beside their budgets, as lines of text."""
    walked = {} if quick else {name: len(found) for name, found in walks().items()}
    for name, n in {**sizes(), **interface(), **walked}.items():
        yield f"{name:52}{n:8} of {MOST[name]:7}{'  OVER' * (n > MOST[name])}"
    share = 100.0 * len(own_line_comments()) / sizes()["statements"]
    short = "  TOO FEW" * (share < COMMENTS_PER_100_STATEMENTS)
    wanted = f"{share:8.1f}, ≥ {COMMENTS_PER_100_STATEMENTS:g}{short}"
    yield f"{'own-line comments per 100 statements':52}{wanted}"
    for room, n in rooms().items():
        over = f"  OVER by {n - BUDGETS[room]}" * (n > BUDGETS[room])
        yield f"  {' '.join(room):50}{n:8} of {BUDGETS[room]:7}{over}"
    for name, find in RULES.items():
        found = find()
        yield f"{name}: {len(found)}"
        yield from (f"  {one}" for one in found)


def main() -> None:
    parser = parser_of(__doc__)
    for line in report(parse(parser).quick):
        print(line)


if __name__ == "__main__":
    main()
