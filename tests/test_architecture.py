"""The house keeps its shape: imports go one way, importing ksos is light and touches nothing
global, files stay short.
"""

from __future__ import annotations

import ast
import importlib
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import house
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
    {"density"},
    {"data"},
    {"space"},
    {"functionals"},
    {"solvers"},
    {"choose"},
    {"robust"},
    {"estimators"},
    {"explorer", "plotting"},
    {"__init__"},
    {"cli"},
    {"__main__"},
]

# (importing module, imported module): why this one import may go up.
UPWARD: dict[tuple[str, str], str] = {
    (
        "ksos.density.compress",
        "ksos.space.embedding",
    ): "a compressed density reports its exact MMD to the original",
    ("ksos.data.sources", "ksos.cli.tables"): "CSV files are read as the command line reads them",
    ("ksos.density.queries", "ksos.space.embedding"): "ksos.mmd, as a method of the density",
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
]

# What users type, as far as it exists today.
PUBLIC = {
    "ksos": [
        "Compression",
        "CrossValidationDisplay",
        "DensityDisplay",
        "KernelSoSDensity",
        "MeanEmbedding",
        "SoSDensity",
        "SoSSpace",
        "Solution",
        "SolutionDisplay",
        "load",
        "minimize",
        "mixture",
        "mmd",
    ],
    "ksos.kernels": ["Gaussian", "Kernel", "Laplace", "Matern"],
    "ksos.measures": ["Box", "Discrete", "Lebesgue", "Measure", "Normal"],
    "ksos.observables": [
        "BoxIndicator",
        "KernelFunction",
        "NumericFunction",
        "Observable",
        "Polynomial",
        "as_observable",
        "coordinate",
    ],
    "ksos.functionals": [
        "MMD",
        "Constraint",
        "CustomFunctional",
        "Expectation",
        "Frobenius",
        "Functional",
        "SquaredL2",
        "SquaredMMD",
        "Trace",
        "check_gradient",
        "within",
    ],
    "ksos.exceptions": [
        "BandwidthWarning",
        "ConvexityError",
        "FunctionalError",
        "IntegralNotAvailableError",
        "KsosError",
        "ModelFormatError",
    ],
}


def module_name(file: Path) -> str:
    parts = ("ksos", *file.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


MODULES = {module_name(file): file for file in sorted(PACKAGE.rglob("*.py"))}


def unit(module: str) -> str:
    """The file or folder of src/ksos that a module belongs to."""
    return module.split(".")[1]


def imported_names(module: str, *, at_import_only: bool = False) -> set[str]:
    """The dotted names that ``module`` imports anywhere in its text: at the top, inside functions,
    or for type checkers.
    """
    found = set()
    pending: list[ast.AST] = [ast.parse(MODULES[module].read_text(encoding="utf-8"))]
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


def test_files_stay_short() -> None:
    folders = [ROOT / name for name in ("src", "tests", "examples", "benchmarks")]
    lengths = {file: house.count_lines(file) for folder in folders for file in house.files(folder)}
    none(
        [
            f"{file.relative_to(ROOT)}: {n} lines"
            for file, n in lengths.items()
            if n > house.LIMITS["lines of a file"]
        ],
        "one idea per file",
    )


def none(found: list[str], remedy: str) -> None:
    """Fail with everything that was found, one in a line, and with what to do."""
    assert not found, "\n".join([remedy, *found])


def test_the_house_stays_small() -> None:
    sizes = house.sizes()
    found = {
        "files": sum(n for n, _ in sizes.values()),
        "statements": sum(n for _, n in sizes.values()),
    }
    assert not {name: n for name, n in found.items() if n > house.LIMITS[name]}


def test_private_modules_are_imported_within_their_package() -> None:
    none(house.private_imports(), "make it public, or move the code to where it is needed")


def test_nobody_asks_for_the_class_of_a_measure() -> None:
    none(
        house.measure_checks(),
        "ask the measure: give Measure a method or a property, and each measure its answer",
    )


def test_objects_are_made_by_their_constructors() -> None:
    none(
        house.shortcuts(),
        "composition instead of a subclass of SoSSpace, a constructor instead of __new__ and"
        " __dict__",
    )


def test_rules_live_in_quadrature() -> None:
    none(house.rules(), "use ksos.quadrature")


def test_nothing_patches_a_private_name() -> None:
    none(
        house.private_patches(),
        "inject the limit: an argument, an option, ksos.ground.memory.resources",
    )


def test_nothing_is_written_twice() -> None:
    none(house.shared_lines(), "one place per idea")


def test_the_numbers_can_be_printed() -> None:
    assert any("files of at most 40 lines" in line for line in house.report())


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module: str) -> None:
    public = importlib.import_module(module)
    missing = [name for name in PUBLIC[module] if not hasattr(public, name)]
    assert not missing
    assert set(PUBLIC[module]) <= set(public.__all__)


@pytest.mark.parametrize(
    "module", [module for module in MODULES if not module.endswith("__main__")]
)
def test_all_lists_what_is_there(module: str) -> None:
    names = getattr(importlib.import_module(module), "__all__", [])
    assert len(names) == len(set(names))
    missing = [name for name in names if not hasattr(importlib.import_module(module), name)]
    assert not missing


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


def fresh(program: str, environment: dict[str, str] | None = None) -> object:
    """What ``program`` prints as JSON in a new interpreter that finds this very package."""
    program = f"import sys; sys.path.insert(0, {str(PACKAGE.parent)!r})\n{program}"
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


def test_import_leaves_heavy_packages_alone() -> None:
    # some of them come with scikit-learn itself: only what ksos adds is counted here, and the test
    # of the text above covers the others
    loaded = fresh(f"""
import json, sklearn
before = set(sys.modules)
import ksos
print(json.dumps([name for name in {HEAVY!r} if name in sys.modules and name not in before]))
""")
    assert loaded == []


def test_import_changes_nothing_global() -> None:
    changed = fresh(f"""
import json, locale, logging, os, random, signal, threading, warnings
import matplotlib, matplotlib.pyplot, numpy as np, scipy.linalg, scipy.special, scipy.stats, sklearn.base, sklearn.cluster, sklearn.utils
import array_api_compat

def state():
    return dict(
        errors=np.geterr(), printing=np.get_printoptions(), filters=list(warnings.filters), shown=warnings.showwarning,
        random=random.getstate(), numpy_random=repr(np.random.get_state()), rc=dict(matplotlib.rcParams), backend=matplotlib.get_backend(),
        environment=dict(os.environ), path=list(sys.path), folder=os.getcwd(), locale=locale.setlocale(locale.LC_ALL),
        interrupt=signal.getsignal(signal.SIGINT), handlers=list(logging.getLogger().handlers), level=logging.getLogger().level,
        hooks=(sys.excepthook, threading.excepthook), recursion=sys.getrecursionlimit(), sklearn=sklearn.get_config(),
    )

before = state()
for name in {[m for m in MODULES if not m.endswith(("__main__", "__init__"))]!r}:
    __import__(name)
after = state()
print(json.dumps([key for key in before if before[key] != after[key]]))
""")
    assert changed == []


def test_import_is_quick(tmp_path: Path) -> None:
    # compiled, as an installed package is: in a folder of its own, for checkouts may be kept free
    # of it
    environment = {
        key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"
    } | {"PYTHONPYCACHEPREFIX": str(tmp_path)}
    program = """
import json, time
import sklearn
start = time.process_time()
import ksos
print(json.dumps(time.process_time() - start))
"""
    best = math.inf
    for _ in range(
        5
    ):  # processor time, the best of five, and no more of them than needed: what else the machine does must not count
        best = min(best, float(str(fresh(program, environment))))
        if best < 0.3:
            return
    pytest.fail(f"import ksos adds {best:.2f} s to import sklearn")
