"""Probabilities, means, covariances, quantiles and the mode of a saved density, or of a marginal or
conditional of it, which can be saved.

Without a question: mean, standard deviation and quantiles of every feature.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from ksos.cli import values
from ksos.cli.boxes import add_box, box_sides
from ksos.cli.console import Console, require_writable
from ksos.cli.view import View, add_view_options, take_view
from ksos.density.io import load

__all__ = ["add_arguments", "run"]

_SUMMARY = (0.05, 0.5, 0.95)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos query`` understands."""
    parser.add_argument(
        "model", metavar="MODEL", help="a file written by ksos fit, or by this command"
    )
    parser.add_argument(
        "--json",
        action="store_true",
        help="one JSON object on the standard output; an infinite bound is null",
    )
    add_view_options(parser)
    add = parser.add_argument_group("what to ask of it").add_argument
    add_box(add, "a box whose probability is wanted")
    add("--mean", action="store_true", help="the mean of every feature")
    add("--cov", action="store_true", help="the covariance matrix")
    add(
        "--quantile",
        type=values.probabilities,
        metavar="LIST",
        help="quantiles of every feature: numbers from 0 to 1 separated by commas",
    )
    add("--mode", action="store_true", help="the point where the density is highest")
    add(
        "-o",
        "--output",
        metavar="FILE",
        help="save the marginal or conditional density as a model of its own",
    )


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos query``."""
    require_writable(arguments.output)
    view = take_view(load(arguments.model), arguments)
    found = _answers(view, arguments)
    if arguments.output is not None:
        view.density.save(arguments.output)
    return console.answer(
        arguments.json,
        {**view.described(), **found, "output": arguments.output},
        _report(view, found),
    )


def _answers(view: View, arguments: argparse.Namespace) -> dict[str, Any]:
    """What was asked, as JSON can hold it; vectors are in the order of the features looked at."""
    density, found = view.density, {}
    box = _box(view, arguments)
    asked = (
        box is not None or arguments.mean or arguments.cov or arguments.quantile or arguments.mode
    )
    summary = not asked and arguments.output is None
    if box is not None:
        low, high = box
        found["low"], found["high"] = low.tolist(), high.tolist()
        found["probability"] = float(density.probability(low, high))
    if arguments.mean or summary:
        found["mean"] = density.mean().tolist()
    if summary:
        found["standard_deviation"] = (density.cov().diagonal().clip(min=0.0) ** 0.5).tolist()
    if arguments.cov:
        found["covariance"] = density.cov().tolist()
    if levels := arguments.quantile or (_SUMMARY if summary else ()):
        marginals = [
            density if len(view.features) == 1 else density.marginal([j])
            for j in range(len(view.features))
        ]
        columns = [marginal.ppf(np.array(levels)).tolist() for marginal in marginals]
        found["quantiles"] = [
            {"level": level, "values": list(row)}
            for level, row in zip(levels, zip(*columns, strict=True), strict=True)
        ]
    if arguments.mode:
        found["mode"] = density.mode().tolist()
    return found


def _box(view: View, arguments: argparse.Namespace) -> tuple[np.ndarray, np.ndarray] | None:
    """``--low`` and ``--high`` with one entry for each feature looked at."""
    sides = box_sides(arguments, view.names)
    if sides is not None and view.density.measure.atoms is None:  # elsewhere a point has no mass
        for name, a, b in zip(view.names, *(side.tolist() for side in sides), strict=True):
            if a == b:
                raise ValueError(
                    f"the box is empty: --low must be less than --high, but of {name} they are"
                    f" {a!r} and {b!r}"
                )
    return sides


def _report(view: View, found: dict[str, Any]) -> list[str]:
    """The same for a reader: a lone probability is just the number, everything else is a table of
    six digits, a row for each feature.
    """
    per_feature = {
        name.replace("_", " "): found[name]
        for name in ("mean", "standard_deviation", "mode")
        if name in found
    }
    per_feature |= {
        f"quantile {quantile['level']:g}": quantile["values"]
        for quantile in found.get("quantiles", ())
    }
    per_feature |= {
        f"cov with {name}": row
        for name, row in zip(view.names, found.get("covariance", ()), strict=False)
    }
    lines = []
    if "probability" in found:
        lines.append(
            repr(found["probability"])
            if not per_feature
            else f"probability {found['probability']!r}"
        )
    if per_feature:
        rows = [["feature", *per_feature]]
        rows += [
            [name, *(f"{column[i]:.6g}" for column in per_feature.values())]
            for i, name in enumerate(view.names)
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines += [f"given {view.said()}"] if view.given else []
        lines += [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in rows
        ]
    return lines
