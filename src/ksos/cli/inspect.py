"""Show what is in a saved density: its size, its kernel and measure, its mass
recomputed, and the file that holds it.

examples:
  ksos inspect cars.ksos
  ksos inspect cars.ksos --json
  ksos inspect mpg.ksos --json > mpg.json
"""

import argparse
import os
from typing import Any

from ksos.cli.console import Console
from ksos.cli.options import MODEL
from ksos.cli.report import composition
from ksos.density import io

ARGUMENTS = [MODEL]


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos inspect``."""
    density, header = io.load(arguments.model), io.read_header(arguments.model)
    made, mass, names = composition(density), float(density.probability()), density.feature_names
    value = {
        "n_features": density.n_features,
        "feature_names": names and list(names),
        **made,
        "mass": mass,
        "format_version": header["format_version"],
        "library_version": header["library_version"],
        "file_size": os.path.getsize(arguments.model),
    }
    rows: dict[str, Any] = {"features d": density.n_features, "support points m": made["n_support"]}
    rows["rank"] = made["rank"]
    itself = bool(made["n_components"]) and not made["n_support"]
    if not itself:
        rows["kernel"] = density.kernel
    rows["measure"] = density.measure
    if made["n_components"]:
        why = " (the density is the reference itself)" if itself else ""
        rows["components"] = f"{made['n_components']}{why}"
    if names:
        rows["names"] = ", ".join(names)
    rows["mass"] = f"{mass:.12g} (1 {mass - 1.0:+.1e})"
    rows["format version"] = "{format_version} (written by ksos {library_version})".format(**value)
    rows["file size"] = f"{value['file_size']} bytes"
    return console.answer(
        arguments.json, value, (f"{name:<18}{shown}" for name, shown in rows.items())
    )
