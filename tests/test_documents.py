"""Everything the pages show is true: their code runs, their names and files exist, their numbers of
version agree.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas
import pytest

import ksos
from ksos.kernels import Gaussian

ROOT = Path(__file__).resolve().parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
PAGE_IDS = [str(page.relative_to(ROOT)) for page in PAGES]

every_page = pytest.mark.parametrize("page", PAGES, ids=PAGE_IDS)


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def fences(text: str, language: str) -> list[tuple[int, str]]:
    """(line number, content) of the fenced blocks in one language."""
    return [(line, block) for line, block, _ in with_outputs(text, language)]


def with_outputs(text: str, language: str) -> list[tuple[int, str, str | None]]:
    """The same with what the text block right behind each shows as its output, if there is one."""
    pattern = re.compile(
        rf"^([ \t]*)```{language}[^\n]*\n(.*?)^\1```[ \t]*$(?:\n+```text\n(.*?)^```$)?",
        re.MULTILINE | re.DOTALL,
    )
    return [
        (text.count("\n", 0, found.start()) + 2, textwrap.dedent(found[2]), found[3])
        for found in pattern.finditer(text)
    ]


def without_fences(text: str) -> str:
    return re.sub(r"^[ \t]*```.*?^[ \t]*```[ \t]*$", "", text, flags=re.MULTILINE | re.DOTALL)


def find(dotted: str) -> Any:
    """What a dotted name stands for: a module, an attribute of one, or a field that a class only
    annotates.
    """
    parts = dotted.split(".")
    for n in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:n]))
        except ModuleNotFoundError:
            continue
        for name in parts[n:]:
            annotated = {
                key
                for base in getattr(found, "__mro__", ())
                for key in vars(base).get("__annotations__", {})
            }
            found = getattr(found, name, None) if name in annotated else getattr(found, name)
        return found
    raise ModuleNotFoundError(dotted)


@every_page
def test_dotted_names_resolve(page: Path) -> None:
    names = set(
        re.findall(r"(?<![\w./-])ksos(?:\.[A-Za-z_]\w*)+", page.read_text(encoding="utf-8"))
    )
    broken = []
    for name in sorted(names):
        try:
            find(name)
        except (ImportError, AttributeError):
            broken.append(name)
    assert not broken


def test_unknown_names_do_not_resolve() -> None:
    for name in (
        "ksos.nothing",
        "ksos.kernels.nothing",
        "ksos.Solution.nothing",
        "ksos.kernels.Gaussian.nothing",
    ):
        with pytest.raises((ImportError, AttributeError)):
            find(name)


@every_page
def test_python_blocks_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda *_, **__: None)
    namespace: dict[str, Any] = {"__name__": "__page__"}
    try:
        for line, block, shown in with_outputs(page.read_text(encoding="utf-8"), "python"):
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                # blank lines in front, so that a traceback names the line of the page
                exec(compile("\n" * (line - 1) + block, str(page), "exec"), namespace)
            # what a block prints stands in the text block behind it
            assert printed.getvalue().split() == (shown or "").split(), f"line {line}"
    finally:
        plt.close("all")


CONSOLES = [page for page in PAGES if "```pycon" in page.read_text(encoding="utf-8")]


@pytest.mark.parametrize("page", CONSOLES, ids=[page.stem for page in CONSOLES])
def test_consoles_show_what_is_printed(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = "\n".join(block for _, block in fences(page.read_text(encoding="utf-8"), "pycon"))
    test = doctest.DocTestParser().get_doctest(text, {}, page.stem, str(page), 0)
    assert test.examples
    said: list[str] = []
    doctest.DocTestRunner(verbose=False, optionflags=doctest.NORMALIZE_WHITESPACE).run(
        test, out=said.append
    )
    assert not said, "".join(said)


def inline_calls(page: Path) -> list[str]:
    """Calls of ksos in the tables of a page, and of a density p in their last columns."""
    rows = [
        line
        for line in without_fences(page.read_text(encoding="utf-8")).splitlines()
        if line.startswith("|")
    ]
    ours, of_density = r"(ksos\.\w+|KernelSoS\w+)\(", r"p\.\w+\("
    found = []
    for row in rows:
        last = row.rstrip("| ").rpartition("|")[2]
        found += [
            code
            for code in re.findall(r"`([^`]+)`", row)
            if re.match(ours, code) or (re.match(of_density, code) and code in last)
        ]
    return found


TABLES = [page for page in PAGES if inline_calls(page)]


@pytest.mark.parametrize("page", TABLES, ids=[str(page.relative_to(ROOT)) for page in TABLES])
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_calls_in_tables_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, new = rng.normal(size=(40, 2)), rng.normal(size=(10, 2))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    frame = pandas.DataFrame(X * [30.0, 5.0] + [120.0, 27.0], columns=["hp", "mpg"])
    frame.to_parquet(tmp_path / "folder" / "part.parquet")
    p = ksos.KernelSoSDensity(reference="normal").fit(frame).distribution_
    known = vars(ksos.kernels) | vars(ksos.measures) | vars(ksos.functionals)
    known |= {name: getattr(ksos, name) for name in ksos.__all__ if name.startswith("KernelSoS")}
    known |= {
        "ksos": ksos,
        "X": X,
        "new": new,
        "y": X[:, 0] + rng.normal(size=40),
        "w": np.ones(40),
        "a": X,
        "b": new,
        "s": 1.0,
        "space": ksos.SoSSpace(Gaussian(1.0), X),
        "mixture": ksos.measures.GaussianMixture([1.0], [[0.0, 0.0]], [[1.0, 1.0]]),
        "data": X[:, :1],
        "radius": 0.3,
        "loss": lambda theta, x: ((x[:, 0] - theta[0]) ** 2, 2.0 * (theta[0] - x)),
        "theta0": [0.0],
        "p": p,
        "q": p,
        "low": {"hp": 100.0},
        "high": {"mpg": 30.0},
        "f": lambda x: x[:, 0] ** 2,
        "n": 3,
        "A": np.eye(2),
        "shift": [1.0, 0.0],
        "mean": [0.0, 0.0],
        "cov": np.eye(2),
        "path": "model.ksos",
    }
    for code in inline_calls(page):
        eval(compile(code, str(page), "eval"), dict(known))


@every_page
def test_links_lead_somewhere(page: Path) -> None:
    text = without_fences(page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\(([^)\s]+)[^)]*\)", text) + re.findall(
        r"(?:src|href)=\"([^\"]+)\"", text
    )
    broken = []
    for target in targets:
        if re.match(r"[a-z][a-z+.-]*:", target):
            continue  # another site, or mail
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as code hosts make them."""
    headings = re.findall(
        r"^#+ +(.+?) *$", without_fences(page.read_text(encoding="utf-8")), re.MULTILINE
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@every_page
def test_named_files_exist(page: Path) -> None:
    names = re.findall(
        r"`((?:src|tests|docs|examples|benchmarks)/[\w./-]*)`",
        page.read_text(encoding="utf-8"),
    )
    assert not [name for name in names if not (ROOT / name).exists()]


@every_page
def test_named_make_targets_exist(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    named = set(re.findall(r"`(?:\$ )?make ([a-z-]+)\b", page.read_text(encoding="utf-8")))
    assert named <= targets


def test_readme_first_screen() -> None:
    text = read("README.md")
    assert re.search(r"\bmake demo\b", text)
    assert re.search(r"\bmake test\b", text)
    assert re.search(r"!\[|<img", text), "one picture"
    first = fences(text, "python")[0][1]
    assert 0 < len([line for line in first.splitlines() if line.strip()]) <= 8


def test_one_version_everywhere() -> None:
    version = re.escape(ksos.__version__)
    assert re.search(rf"^## \[{version}\]", read("CHANGELOG.md"), re.MULTILINE)
    assert re.search(rf"^version: \"?{version}\"?$", read("CITATION.cff"), re.MULTILINE)
    assert re.search(r"^license: BSD-3-Clause$", read("CITATION.cff"), re.MULTILINE)
    assert read("LICENSE").startswith("BSD 3-Clause License")


def test_citation_names_the_paper() -> None:
    text = read("CITATION.cff")
    for words in (
        "Muzellec",
        "Bach",
        "Rudi",
        "A Note on Optimizing Distributions using Kernel Mean Embeddings",
        "2106.09994",
    ):
        assert words in text


# --- names ---


def tracked() -> list[Path]:
    """The text files of the project, those that git tracks if this is a checkout."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if done.returncode == 0 and done.stdout:
        found = [ROOT / name for name in done.stdout.decode().split("\0") if name]
    else:
        found = [
            file
            for name in ("src", "tests", "docs", "examples", "benchmarks")
            for file in (ROOT / name).rglob("*")
        ]
        found += [file for file in ROOT.iterdir() if file.suffix in (".md", ".toml", ".cff")]
    return [
        file
        for file in found
        if file.is_file() and file.suffix not in (".png", ".pdf", ".pyc", ".npz", ".jsonl", ".csv")
    ]


def test_the_distribution_is_kernel_sos() -> None:
    forbidden = re.compile(
        r"pip3? install [^\n]{0,30}?(?<![\w/.-])['\"]?" + r"ksos\b(?!/)"
    )  # the name belongs to another product
    texts = {file: file.read_text(encoding="utf-8", errors="replace") for file in tracked()}
    assert len(texts) > 200
    assert not [
        str(file.relative_to(ROOT)) for file, text in texts.items() if forbidden.search(text)
    ]
    project = tomllib.loads(read("pyproject.toml"))["project"]
    assert project["name"] == "kernel-sos" and list(project["scripts"]) == ["ksos"]
    assert {"plot", "torch", "cvx", "arrow", "dask", "test", "lint", "all"} <= set(
        project["optional-dependencies"]
    )
    asked = {
        extra for text in texts.values() for extra in re.findall(r"kernel-sos\[([a-z]+)\]", text)
    }
    assert asked <= set(project["optional-dependencies"])


def test_every_dependency_has_one_lowest_version() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "tools" / "floors.py"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    floors = dict(line.split("==") for line in done.stdout.split())
    assert {"numpy", "scipy", "scikit-learn", "pandas", "pytest"} <= set(floors)
    assert "torch" not in floors  # constraints.txt says which version


# --- references ---

# a key in brackets, or one of several: [Muzellec2021], [Hestenes1969, Powell1969]
KEY = re.compile(r"(?<=[\[ ])[A-Z][A-Za-z]+(?:19|20)\d\d[a-z]?(?=[\],])")


def test_every_source_that_is_cited_is_listed_and_every_one_listed_is_cited() -> None:
    listed = re.findall(r"^@\w+\{(\w+),", read("docs/references.bib"), re.MULTILINE)
    cited = {
        key
        for folder in ("src", "examples")
        for file in (ROOT / folder).rglob("*.py")
        for key in KEY.findall(file.read_text(encoding="utf-8"))
    }
    assert len(listed) == len(set(listed))
    assert cited - set(listed) == set(), "cited, but not in docs/references.bib"
    assert set(listed) - cited == set(), "in docs/references.bib, but not cited in src or examples"


def test_every_reference_is_whole() -> None:
    for entry in re.split(r"^@", read("docs/references.bib"), flags=re.MULTILINE)[1:]:
        for field in ("author", "title", "year"):
            assert re.search(rf"\b{field}\s*=", entry), entry.splitlines()[0]


# --- the floor plan ---


def test_the_walks_lead_through_files_that_exist() -> None:
    named = set(
        re.findall(
            r"`((?!src/|tests/|docs/|benchmarks/)[a-z_]+(?:/[a-z_]+)*(?:\.py|/))`",
            read("docs/architecture.md"),
        )
    )
    assert len(named) > 20
    assert not [name for name in sorted(named) if not (ROOT / "src" / "ksos" / name).exists()]


# --- other engines ---


def test_the_lines_for_other_engines_add_up_all_samples() -> None:
    from engines import SAMPLES

    namespace: dict[str, Any] = {}
    blocks = [block for _, block in fences(read("docs/large-data.md"), "python")]
    begin = next(k for k, block in enumerate(blocks) if "part =" in block)
    blocks = [blocks[0], *blocks[begin:]]
    ray, spark = (
        next(k for k, block in enumerate(blocks) if word in block)
        for word in ("map_batches", "mapInArrow")
    )
    for k, block in enumerate(blocks[: spark + 1]):
        exec(compile(block, "large-data.md", "exec"), namespace)
        if k in (ray, spark):
            assert len(block.strip().splitlines()) <= 10
            expected, found = namespace["nothing"].update(SAMPLES), namespace["total"]
            assert (
                found.count == len(SAMPLES)
                and abs(found.values - expected.values).max() < 1e-12 * abs(expected.values).max()
            )
    assert abs(namespace["p"].mean() - namespace["q"].mean()).max() < 1e-6
