"""Show what is in a saved density: its size, its kernel and measure, its mass recomputed, and the
file that holds it.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

from ksos.cli.composition import Composition
from ksos.cli.console import Console
from ksos.density import io

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos inspect`` understands."""
    parser.add_argument("model", metavar="MODEL", help="a file written by ksos fit")
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object on the standard output; an infinite bound is null",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos inspect``."""
    density, header = io.load(arguments.model), io.read_header(arguments.model)
    made, d = Composition.of(density), density.n_features
    mass, size = density.mass(), os.path.getsize(arguments.model)
    versions = {name: header[name] for name in ("format_version", "library_version")}
    names = density.feature_names
    value = {
        "n_features": d,
        "feature_names": None if names is None else list(names),
        **made.described(),
        "mass": mass,
        **versions,
        "file_size": size,
    }
    rows: dict[str, Any] = {"features d": d, "support points m": made.n_support, "rank": made.rank}
    rows |= (
        {"measure": made.measure}
        if made.is_reference
        else {"kernel": made.kernel, "measure": made.measure}
    )
    if made.n_components:
        itself = " (the density is the reference itself)" if made.is_reference else ""
        rows["reference"] = (
            f"{made.n_components} Gaussian component{'s' if made.n_components > 1 else ''}{itself}"
        )
    rows |= {} if names is None else {"names": ", ".join(names)}
    written = f"{header['format_version']} (written by ksos {header['library_version']})"
    rows |= {
        "mass": f"{mass:.12g} (1 {mass - 1.0:+.1e})",
        "format version": written,
        "file size": f"{size} bytes",
    }
    return console.answer(
        arguments.json, value, (f"{name:<18}{shown}" for name, shown in rows.items())
    )
