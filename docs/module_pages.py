"""The pages of the reference that list a module's public names, written by the build."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import ksos

__all__ = ["PURPOSES", "names", "page", "write"]

PURPOSES = {
    "kernels": "A kernel is what a density is made of, and the geometry in which MMD compares.",
    "measures": "What ρ is: where a density lives, and what its values are relative to.",
    "functionals": "What is minimized, and what constrains it: add with `+`, scale with `*`, bound"
    " with `<=`, `==` and `within`.",
    "observables": "Functions of x whose expectations enter functionals, constraints and losses.",
    "risk": "What `ksos.decide` minimizes, and what it may bound in `subject_to`. Risks need the"
    " extra `cvx`.",
    "solvers": "How a functional is minimized. `ksos.minimize` chooses, or takes one by `solver=`.",
    "adapters": "Densities and estimators in the interfaces of"
    " [other libraries](../../other-libraries.md).",
}


def names(module: str) -> Iterator[str]:
    """The public names of a module that ksos itself does not have."""
    home = importlib.import_module(f"ksos.{module}")
    for name in home.__all__:
        if name not in ksos.__all__ and not isinstance(getattr(home, name), ModuleType):
            yield name


def page(module: str) -> str:
    """Markdown with the list from which autosummary makes a page for each name."""
    lines = [f"# {module.capitalize()}", "", PURPOSES[module], "", "```{eval-rst}"]
    lines += [f".. currentmodule:: ksos.{module}", ".. autosummary::", "   :toctree: .", ""]
    return "\n".join([*lines, *(f"   {name}" for name in names(module)), "```", ""])


def write(folder: Path) -> None:
    """A page for each module."""
    folder.mkdir(parents=True, exist_ok=True)
    for module in PURPOSES:
        (folder / f"{module}.md").write_text(page(module), encoding="utf-8")
