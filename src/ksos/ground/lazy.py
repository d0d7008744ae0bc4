"""Modules that are imported on first use: what a script does not touch costs it nothing at start,
and need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def later(
    package: dict[str, Any], modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` for the package with these globals.

    ``modules`` says where each name lives; an empty word means that the name is a module of the
    package itself.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package['__name__']!r} has no attribute {name!r}")
        value = (
            getattr(import_module(modules[name]), name)
            if modules[name]
            else import_module(f"{package['__name__']}.{name}")
        )
        # the next time it is found without us
        package[name] = value
        return value

    return get, lambda: sorted({*package, *modules})


def needed(module: str, what: str, package: str) -> Any:
    """A module that ``what`` needs, or an error with the package to install."""
    try:
        return import_module(module)
    except ImportError:
        message = f"{what} needs {module}: pip install {package}"
        raise ModuleNotFoundError(message, name=module) from None
