"""The site leaves nothing out: every page is in its table of contents, every public name in its
reference and in an example that runs.
"""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from test_documents import ROOT, fences

import ksos
from docs import module_pages

DOCS = ROOT / "docs"
MODULES = [
    "ksos",
    *(f"ksos.{name}" for name in ("kernels", "measures", "functionals", "observables", "risk")),
    "ksos.solvers",
    "ksos.adapters",
]
GENERATED = {
    "how-to": "how_to",
    "gallery": "gallery",
}  # folders of pages that the build makes of the scripts in examples/


def own_pages() -> set[str]:
    pages = (page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md"))
    return {page for page in pages if is_written(page)}


def is_written(page: str) -> bool:
    """Whether a page is one of the repository, not one of the build."""
    return page.partition("/")[0] not in GENERATED and "generated" not in Path(page).parts


def entries(page: str) -> list[str]:
    """The pages that the tables of contents of a page name, from the root of the site."""
    text, found = (DOCS / f"{page}.md").read_text(encoding="utf-8"), []
    for _, block in fences(text, r"\{toctree\}"):
        lines = [
            line.strip()
            for line in block.splitlines()
            if line.strip() and not line.strip().startswith(":")
        ]
        names = [re.sub(r"^.*<(.+)>$", r"\1", line) for line in lines]
        found += [(Path(page).parent / name).as_posix() for name in names]
    return found


def test_every_page_is_reached_from_the_first_by_one_way() -> None:
    reached, waiting = ["index"], ["index"]
    while waiting:
        new = [page for page in entries(waiting.pop()) if is_written(page)]
        reached += new
        waiting += new
    assert sorted(reached) == sorted(own_pages())


def test_the_scripts_are_in_the_site() -> None:
    named = {entry for page in own_pages() for entry in entries(page)}
    for folder, scripts in GENERATED.items():
        assert f"{folder}/index" in named
        assert (ROOT / "examples" / scripts / "GALLERY_HEADER.rst").exists()


def test_every_how_to_is_asked_for() -> None:
    asked = set(
        re.findall(r"examples/how_to/(\w+)\.py", (DOCS / "how-do-i.md").read_text(encoding="utf-8"))
    )
    assert asked == {script.stem for script in (ROOT / "examples" / "how_to").glob("*.py")}


def listed() -> set[str]:
    """The dotted names of the reference."""
    found = set()
    modules = [module_pages.page(module) for module in module_pages.PURPOSES]
    assert {f"reference/generated/{name}" for name in module_pages.PURPOSES} <= set(
        entries("reference/index")
    )
    for page in ((DOCS / "reference" / "index.md").read_text(encoding="utf-8"), *modules):
        for _, block in fences(page, r"\{eval-rst\}"):
            module = re.search(r"^\.\. currentmodule:: (\S+)$", block, re.MULTILINE)
            assert module is not None
            found |= {
                f"{module[1]}.{name}" for name in re.findall(r"^ +(\w+)$", block, re.MULTILINE)
            }
    return found


def public() -> Iterator[tuple[str, str]]:
    """(module, name) of every public name, where it is documented: names of ksos itself are not
    repeated in their modules.
    """
    for module in MODULES:
        home = importlib.import_module(module)
        for name in home.__all__:
            if not isinstance(getattr(home, name), ModuleType) and (
                module == "ksos" or name not in ksos.__all__
            ):
                yield module, name


def test_the_reference_lists_the_public_names_and_nothing_else() -> None:
    assert listed() == {f"{module}.{name}" for module, name in public()}


def examples(thing: Any) -> str:
    """The lines of code in the docstrings of a thing and of its members."""
    members = vars(thing).values() if inspect.isclass(thing) else ()
    texts = [
        inspect.getdoc(part) or ""
        for part in (thing, *members)
        if inspect.isroutine(part) or inspect.isclass(part) or part is thing
    ]
    return "\n".join(
        line for text in texts for line in re.findall(r"^ *(?:>>>|\.\.\.) .*$", text, re.MULTILINE)
    )


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_has_an_example(module: str) -> None:
    missing = []
    for home, name in public():
        thing = getattr(importlib.import_module(home), name)
        documented = (
            thing
            if inspect.isclass(thing) or inspect.isroutine(thing)
            else importlib.import_module(home)
        )
        if home == module and not examples(documented):
            missing.append(name)
    assert not missing


def test_what_the_site_is_built_with_is_pinned() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
        "optional-dependencies"
    ]["docs"]
    pinned = set(
        re.findall(
            r"^([a-z0-9-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
        )
    )
    wanted = set(re.findall(r"^[a-z0-9-]+", "\n".join(extra), re.MULTILINE))
    # what scripts of the gallery draw and solve with: their versions do not warn in the build
    assert wanted - {"matplotlib", "cvxpy"} <= pinned


ESTIMATORS = [
    getattr(ksos, name)
    for name in ksos.__all__
    if name.startswith(("KernelSoSD", "KernelSoSC", "KernelSoSI", "Robust"))
    and inspect.isclass(getattr(ksos, name))
    and hasattr(getattr(ksos, name), "get_params")
]
RESULTS = ["Solution", "Progress", "WorstCase", "Decision", "RobustSolution", "RobustMode"]
RESULTS += ["TwoSampleTest", "Compression", "Estimate", "Ball", "TableDensity", "SoSDensity"]


def parameters(thing: Any) -> list[str]:
    """The names that the section of parameters of a docstring describes, in its order."""
    section = re.search(
        r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n---|\Z)", inspect.getdoc(thing) or "", re.M | re.S
    )
    assert section is not None, thing
    entries = re.findall(r"^([*\w][^:\n]*)", section[1], re.MULTILINE)
    return [name.strip(" *") for entry in entries for name in entry.split(",")]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: estimator.__name__)
def test_an_estimator_says_what_each_parameter_does_in_350_words(estimator: type) -> None:
    text = inspect.getdoc(estimator) or ""
    assert len(text.split()) <= 350
    assert parameters(estimator) == list(inspect.signature(estimator).parameters)
    headings = re.findall(r"^(\w+)\n-{3,}$", text, re.MULTILINE)
    order = ["Parameters", "Attributes", "Notes", "Examples"]
    assert headings == [name for name in order if name in headings] and "Attributes" in headings


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_lists_its_attributes(name: str) -> None:
    text = inspect.getdoc(getattr(ksos, name)) or ""
    assert re.search(r"^Attributes\n-{3,}$", text, re.MULTILINE)


METHODS = [
    (density, name)
    for density in (ksos.SoSDensity, ksos.TableDensity)
    for name, member in inspect.getmembers(density)
    if not name.startswith("_") and callable(member)
]


@pytest.mark.parametrize(("density", "name"), METHODS, ids=lambda x: getattr(x, "__name__", x))
def test_a_method_of_a_density_says_what_it_takes_and_returns(density: type, name: str) -> None:
    method = getattr(density, name)
    assert re.search(r"^Returns\n-{3,}$", inspect.getdoc(method) or "", re.MULTILINE)
    taken = [key for key in inspect.signature(method).parameters if key not in ("self", "cls")]
    if taken:
        assert set(taken) <= set(parameters(method))
