"""The architecture keeps its shape: imports go one way, importing ksos is light and touches nothing
global, every room keeps its budget, and the checks find what they look for.
"""

from __future__ import annotations

import ast
import importlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import architecture
import pytest

import ksos

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = Path(ksos.__file__).parent

# Low to high. A unit (a file or a folder of src/ksos) imports from itself and from the lines above
# its own, nothing else.
LAYERS: list[set[str]] = [
    {"_version", "exceptions"},
    {"ground"},
    {"quadrature"},
    {"kernels", "measures"},
    {"integrals"},
    {"observables"},
    {"risk"},
    {"density"},
    {"data"},
    {"space"},
    {"functionals"},
    {"solvers"},
    {"choose"},
    {"robust"},
    {"estimators"},
    {"adapters"},
    {"explorer", "plotting"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]

# (importing module, imported module): why this one import may go up.
UPWARD: dict[tuple[str, str], str] = {
    ("ksos.density.averages", "ksos.space.embedding"): "ksos.mmd, as a method of the density",
    ("ksos.density.scores", "ksos.adapters.as_scipy"): "to_scipy, a method of the density",
}

HEAVY = [
    "matplotlib",
    "torch",
    "cvxpy",
    "scipy.stats",
    "pandas",
    "sklearn.cluster",
    "dask",
    "distributed",
    "pyarrow",
    "skpro",
]

# What is within its budget so far: names of architecture.MOST, rooms of architecture.BUDGETS, and
# names of architecture.RULES.
SETTLED: list[str | tuple[str, ...]] = [
    "files",
    "public members of SoSDensity",
    "parameters of KernelSoSDensity",
    "parameters of worst_case",
    "files that KernelSoSDensity().fit(X) runs through",
    "files that ksos fit cars.csv runs through",
    "comments",
    "module-level numbers without a reason beside them",
    "banner comments",
    "lines of more than 100 columns",
    "files that are too long, or short and used once",
    "imports from a file inside a package in the tests",
    "imports of another package's private modules",
    "isinstance over measures",
    "objects made around their constructors, and questions by getattr",
    "quadrature rules outside of quadrature/",
    "patches of private names in the tests",
    "places that share 12 lines or more",
    ("kernels", "measures", "integrals", "quadrature", "observables"),
    ("estimators",),
    ("functionals",),
    ("solvers",),
    ("robust",),
    ("data",),
    ("explorer",),
    ("adapters",),
    ("choose",),
]


def module_name(file: Path) -> str:
    parts = ("ksos", *file.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


MODULES = {module_name(file): file for file in sorted(PACKAGE.rglob("*.py"))}


def unit(module: str) -> str:
    """The file or folder of src/ksos that a module belongs to."""
    return module.split(".")[1]


@cache
def imported_names(module: str, *, at_import_only: bool = False) -> set[str]:
    """The dotted names that ``module`` imports anywhere in its text: at the top, inside functions,
    or for type checkers.
    """
    found = set()
    pending: list[ast.AST] = [architecture.tree(MODULES[module])]
    while pending:
        node = pending.pop()
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or (
            isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        )
        if not (later and at_import_only):
            pending.extend(ast.iter_child_nodes(node))
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, (
                f"{module} line {node.lineno}: write the import from ksos, not from dots"
            )
            found.update(f"{node.module}.{alias.name}" for alias in node.names)
    return found


def imported(module: str, *, at_import_only: bool = False) -> set[str]:
    """The modules of ksos among them."""
    names = imported_names(module, at_import_only=at_import_only)
    return {resolve(name) for name in names if name.split(".")[0] == "ksos"}


def resolve(name: str) -> str:
    """The module that a dotted name is, or lives in."""
    while name not in MODULES and "." in name:
        name = name.rpartition(".")[0]
    return "ksos.__init__" if name == "ksos" else name


def test_every_unit_has_its_layer() -> None:
    listed = [name for layer in LAYERS for name in layer]
    assert len(listed) == len(set(listed))
    assert {unit(module) for module in MODULES} == set(listed), (
        "list each file and folder of src/ksos once in LAYERS"
    )


def test_imports_go_one_way() -> None:
    height = {name: i for i, layer in enumerate(LAYERS) for name in layer}
    upward = {
        (module, target)
        for module in MODULES
        for target in imported(module)
        if unit(target) != unit(module) and height[unit(target)] >= height[unit(module)]
    }
    assert upward == set(UPWARD), "not listed, or listed and gone"


def test_the_diagram_lists_every_module() -> None:
    """In docs/architecture.md, a line per folder: "room/  module module …", or more such lines."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn: dict[str, set[str]] = {}
    for line in page.split("```text\n")[1].split("```")[0].splitlines():
        if (found := re.match(r"(?: \w+)? +([\w/]+)/ +(.+)", line)) is not None:
            folder, names = found.groups()
            drawn[folder] = set(names.split())
        else:
            drawn[folder].update(line.split())
    there: dict[str, set[str]] = {}
    for file in PACKAGE.rglob("*.py"):
        if file.parent != PACKAGE:
            names_there = there.setdefault(file.parent.relative_to(PACKAGE).as_posix(), set())
            names_there.update({file.stem} - {"__init__"})
    wrong = {
        f"write {folder}/ {' '.join(sorted(there.get(folder, set())))}": sorted(
            drawn.get(folder, set()) ^ there.get(folder, set())
        )
        for folder in sorted({*drawn, *there})
        if drawn.get(folder) != there.get(folder)
    }
    assert not wrong, f"missing or stale in the diagram of docs/architecture.md: {wrong}"


def test_no_cycle_among_imports_that_run_at_import_time() -> None:
    state: dict[str, str] = {}

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert state.get(module) != "open", " → ".join((*path, module))
        if module in state:
            return
        state[module] = "open"
        for target in sorted(imported(module, at_import_only=True) - {module}):
            visit(target, (*path, module))
        state[module] = "closed"

    for module in MODULES:
        visit(module, ())


def test_only_one_file_knows_array_backends() -> None:
    knowing = {
        module
        for module in MODULES
        for name in imported_names(module)
        if name.split(".")[0] in {"array_api_compat", "torch"}
    }
    assert knowing == {"ksos.ground.arrays"}


def test_heavy_packages_are_imported_where_they_are_used() -> None:
    pending, seen = ["ksos.__init__"], set()
    while pending:
        module = pending.pop()
        seen.add(module)
        pending.extend(imported(module, at_import_only=True) - seen)
        names = imported_names(module, at_import_only=True)
        heavy = [
            name for name in names if any(f"{name}.".startswith(f"{package}.") for package in HEAVY)
        ]
        assert not heavy, (
            f"{module} is part of import ksos: move the import into the function that needs it"
        )
    assert "ksos.kernels.gaussian" in seen


# --- budgets and rules ---

SUGGESTED_FIXES = {
    "imports of another package's private modules": "make it public, or move the code",
    "isinstance over measures": "give Measure a method or a property, and each measure its answer",
    "objects made around their constructors, and questions by getattr": "use the constructor",
    "quadrature rules outside of quadrature/": "use ksos.quadrature",
    "patches of private names in the tests": "inject the limit: an argument or an option",
}


def test_every_room_keeps_its_budget() -> None:
    found = architecture.rooms()
    over = {room: n for room, n in found.items() if n > architecture.BUDGETS[room]}
    assert not {room: n for room, n in over.items() if room in SETTLED}


@pytest.mark.parametrize("count", ["sizes", "interface", "walks"])
def test_the_whole_keeps_its_budget(count: str) -> None:
    if not any(name in SETTLED for name in architecture.MOST):
        return
    found = getattr(architecture, count)()
    counted = {name: n if isinstance(n, int) else len(n) for name, n in found.items()}
    assert set(counted) <= set(architecture.MOST)
    over = {name: n for name, n in counted.items() if n > architecture.MOST[name]}
    assert not {name: n for name, n in over.items() if name in SETTLED}


def test_comments_explain_why() -> None:
    least = architecture.COMMENTS_PER_100_STATEMENTS * architecture.sizes()["statements"] / 100.0
    if "comments" in SETTLED:
        assert len(architecture.own_line_comments()) >= least


@pytest.mark.parametrize("rule", architecture.RULES)
def test_every_rule_is_kept(rule: str) -> None:
    found = architecture.RULES[rule]()
    if rule in SETTLED:
        assert not found, "\n".join([SUGGESTED_FIXES.get(rule, rule), *found])


def test_all_lists_what_is_there() -> None:
    for module in MODULES:
        if not module.endswith("__main__"):
            there = importlib.import_module(module)
            names = getattr(there, "__all__", [])
            assert len(names) == len(set(names)), module
            assert not [name for name in names if not hasattr(there, name)], module


def test_flat_api_lists_everything_it_shows() -> None:
    folders = {unit(module) for module in MODULES}
    shown = (
        {name for name in vars(ksos) if not name.startswith("_")}
        - folders
        - {"TYPE_CHECKING", "annotations"}
    )
    assert shown - set(ksos.__all__) == set()
    assert set(ksos.__all__) <= set(dir(ksos)) and all(hasattr(ksos, name) for name in ksos.__all__)


# --- what importing does, seen from a fresh process ---


def fresh(
    program: str, environment: dict[str, str] | None = None, folder: Path = PACKAGE.parent
) -> Any:
    """What ``program`` prints as JSON in a new interpreter that finds this very package."""
    program = f"import sys; sys.path.insert(0, {str(folder)!r})\n{program}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_import_changes_nothing_global() -> None:
    changed = fresh(f"""
import json, locale, logging, os, random, signal, threading, warnings
import matplotlib, matplotlib.pyplot, numpy as np, scipy.linalg, scipy.special, scipy.stats
import array_api_compat, sklearn.base, sklearn.cluster, sklearn.utils

def state():
    return dict(
        errors=np.geterr(), printing=np.get_printoptions(), filters=list(warnings.filters),
        shown=warnings.showwarning, random=random.getstate(),
        numpy_random=repr(np.random.get_state()), rc=dict(matplotlib.rcParams),
        backend=matplotlib.get_backend(), environment=dict(os.environ), path=list(sys.path),
        folder=os.getcwd(), locale=locale.setlocale(locale.LC_ALL),
        interrupt=signal.getsignal(signal.SIGINT), handlers=list(logging.getLogger().handlers),
        level=logging.getLogger().level, hooks=(sys.excepthook, threading.excepthook),
        recursion=sys.getrecursionlimit(), sklearn=sklearn.get_config(),
    )

before = state()
for name in {[m for m in MODULES if not m.endswith(("__main__", "__init__"))]!r}:
    __import__(name)
after = state()
print(json.dumps([key for key in before if before[key] != after[key]]))
""")
    assert changed == []


def test_import_is_quick_and_leaves_heavy_packages_alone(tmp_path: Path) -> None:
    # a copy is compiled, as an installed package is; checkouts may be kept free of it
    shutil.copytree(PACKAGE, tmp_path / "ksos", ignore=shutil.ignore_patterns("__pycache__"))
    environment = {
        key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
    }
    # some heavy packages come with scikit-learn itself: only what ksos adds is counted here, and
    # the test of the text above covers the others
    program = f"""
import json, time
import sklearn
before, start = set(sys.modules), time.process_time()
import ksos
seconds = time.process_time() - start
print(json.dumps([seconds, [name for name in {HEAVY!r} if name in {{*sys.modules}} - before]]))
"""
    best = math.inf
    # processor time, the best of five, and no more of them than needed: what else the machine does
    # must not count
    for _ in range(5):
        seconds, loaded = fresh(program, environment, tmp_path)
        assert loaded == []
        best = min(best, seconds)
        if best < 0.3:
            return
    pytest.fail(f"import ksos adds {best:.2f} s to import sklearn")


# --- the checks find what they look for ---

TWELVE = "\n".join(f"    line_{i} = {i} + offset" for i in range(12))
TREE = {
    "src/ksos/ground/memory.py": "limit = 1\n",
    "src/ksos/ground/numbers.py": (
        """STEP = 2  # a reason
# a reason
TABLE = {"a": 1.5}
# --- numbers ---

width, height = 1, 2  # which of them?
RATE = 0.5
\"\"\"A reason.\"\"\"
half = lambda x: x / 2
"""
    ),
    "src/ksos/measures/box.py": "def f(m):\n    return isinstance(m, Box)\n",
    "src/ksos/robust/bad.py": (
        f"""from ksos.ground.memory import limit
from ksos.density._assemble import parts
from ksos.density.sos import _hidden
from ksos.robust._own import own
import numpy as np


class Wide(SoSSpace):
    def copy(self, other, space):
        self.__dict__.update(other)
        return object.__new__(Wide), getattr(space, "n_labels", 1), getattr(space, "rank")


def f(m, offset):  # a comment
{TWELVE}
    return isinstance(m, (Box, Lebesgue)), np.polynomial.legendre.leggauss(3)
"""
    ),
    "src/ksos/density/good.py": (
        f"def g(offset):\n{TWELVE.replace(' + ', '  +  ')}\n    return offset\n"
    ),
    "src/ksos/quadrature/rules.py": "from numpy.polynomial.legendre import leggauss\n",
    "tests/test_it.py": (
        f"""from ksos.density.good import g
from ksos.density import good, public
def test_it(monkeypatch):
    monkeypatch.setattr("ksos.ground._memory.available", lambda: 1)
    monkeypatch.setattr(module, "_LIMIT", 1)
    monkeypatch.setattr(_memory, "limit", 1)
    monkeypatch.setattr(module, "public", lambda _: 1)
    monkeypatch.setattr(builtins, "__import__", block)
    monkeypatch.setattr("ksos.kernels.gaussian", None)


{"x" * 101}
"""
    ),
}


@pytest.fixture
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(architecture, "ROOT", tmp_path)
    monkeypatch.setattr(architecture, "SOURCE", tmp_path / "src" / "ksos")


@pytest.mark.usefixtures("_tree")
def test_every_check_finds_its_offenders_and_nothing_else() -> None:
    assert architecture.statements() == {
        "ground": 7,
        "measures": 2,
        "robust": 23,
        "density": 14,
        "quadrature": 1,
    }
    assert architecture.rooms()["ground",] == 7
    assert architecture.sizes()["files"] == 6
    assert [line.split(": ")[1] for line in architecture.bare_numbers()] == [
        "limit",
        "(width, height)",
    ]
    assert len(architecture.own_line_comments()) == 2
    assert architecture.banners() == ["src/ksos/ground/numbers.py:4: # --- numbers ---"]
    assert architecture.files_out_of_proportion() == [
        "src/ksos/ground/memory.py: 1 lines, one importer"
    ]
    assert architecture.inner_imports_of_tests() == [
        "tests/test_it.py:1: ksos.density.good.g",
        "tests/test_it.py:2: ksos.density.good",
    ]
    assert architecture.wide_lines() == ["tests/test_it.py:12: 101 columns"]
    assert architecture.private_imports() == [
        "src/ksos/robust/bad.py:2: ksos.density._assemble.parts",
        "src/ksos/robust/bad.py:3: ksos.density.sos._hidden",
    ]
    assert architecture.measure_checks() == [
        "src/ksos/robust/bad.py:27: isinstance(m, (Box, Lebesgue))"
    ]
    assert sorted(line.partition(": ")[2] for line in architecture.shortcuts()) == [
        "class Wide(SoSSpace)",
        "getattr(space, 'n_labels', 1)",
        "object.__new__",
        "self.__dict__",
    ]
    assert architecture.rules() == ["src/ksos/robust/bad.py:27: leggauss"]
    assert [line.split(":")[1] for line in architecture.private_patches()] == ["4", "5", "6"]
    assert architecture.shared_lines() == [
        "src/ksos/density/good.py:2 and src/ksos/robust/bad.py:15: 12 lines"
    ]  # two spaces count as one


def test_equal_runs_are_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(
        f"import x\ndef f(offset):\n{TWELVE}\n\n    # why\n    return line_3\n"
    )
    (tmp_path / "src" / "b.py").write_text(
        f"import y\ndef g(offset):\n{TWELVE}\n    return line_3\n"
    )
    monkeypatch.setattr(architecture, "ROOT", tmp_path)
    monkeypatch.setattr(architecture, "SOURCE", tmp_path / "src")
    assert architecture.shared_lines() == ["src/a.py:3 and src/b.py:3: 13 lines"]
    assert architecture.shared_lines(least=14) == []
