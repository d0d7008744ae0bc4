"""Show what is in a saved density: its size, its kernel and measure, its mass recomputed, and the file that holds it."""

from __future__ import annotations

import argparse
import os

from ksos.cli.console import Console, described
from ksos.density import io

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos inspect`` understands."""
    parser.add_argument("model", metavar="MODEL", help="a file written by ksos fit")
    parser.add_argument("--json", action="store_true", help="one JSON object on the standard output; an infinite bound is null")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos inspect``."""
    density, header = io.load(arguments.model), io.read_header(arguments.model)
    m, d = density.support_points.shape
    mass, size = density.mass(), os.path.getsize(arguments.model)
    parts = {"kernel": described(density.kernel, d), "measure": described(density.measure, d), "mass": mass}
    versions = {name: header[name] for name in ("format_version", "library_version")}
    names = density.feature_names
    value = {
        "n_features": d,
        "feature_names": None if names is None else list(names),
        "n_support": m,
        "rank": density.rank,
        **parts,
        **versions,
        "file_size": size,
    }
    rows = {"features d": d, "support points m": m, "rank": density.rank, "kernel": density.kernel, "measure": density.measure}
    rows |= {} if names is None else {"names": ", ".join(names)}
    written = f"{header['format_version']} (written by ksos {header['library_version']})"
    rows |= {"mass": f"{mass:.12g} (1 {mass - 1.0:+.1e})", "format version": written, "file size": f"{size} bytes"}
    return console.answer(arguments.json, value, (f"{name:<18}{shown}" for name, shown in rows.items()))
