"""Probabilities, means, covariances, quantiles and the mode of a saved density, or of
a marginal or conditional of it, which can be saved.

Without a question: mean, standard deviation and quantiles of every feature.

examples:
  ksos query cars.ksos --low mpg=20 --given hp=100
  ksos query cars.ksos --given hp=95:105 --features mpg --quantile 0.1,0.5,0.9
  ksos query cars.ksos --features mpg -o mpg.ksos
"""

import argparse
from functools import partial
from typing import Any

import numpy as np

from ksos.cli import values
from ksos.cli.console import Console, aligned, require_writable
from ksos.cli.options import MODEL, VIEW, View, box_arguments, box_sides, take_view
from ksos.density import load

_question = partial(values.argument, group="what to ask of it")
ARGUMENTS = [
    MODEL,
    *VIEW,
    *box_arguments("a box whose probability is wanted", "what to ask of it"),
    _question("--mean", action="store_true", help="the mean of every feature"),
    _question("--cov", action="store_true", help="the covariance matrix"),
    _question(
        "--quantile",
        type=values.probabilities,
        metavar="LIST",
        help="quantiles of every feature: numbers from 0 to 1 separated by commas",
    ),
    _question("--mode", action="store_true", help="the point where the density is highest"),
    _question(
        "-o",
        "--output",
        metavar="FILE",
        help="save the marginal or conditional density as a model of its own",
    ),
]
_SUMMARY = [0.05, 0.5, 0.95]  # the median and an interval that holds nine of ten


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos query``."""
    output = arguments.output
    require_writable(output)
    view = take_view(load(arguments.model), arguments)
    density, sides = view.density, box_sides(arguments, view.names)
    asked = [sides, output, *(vars(arguments)[name] or None for name in ("mean", "cov", "mode"))]
    is_summary = all(one is None for one in asked) and arguments.quantile is None
    found: dict[str, Any] = {}
    columns: dict[str, Any] = {}
    lines = []
    if sides is not None:
        label = _event(view, *sides)
        found |= {"low": sides[0].tolist(), "high": sides[1].tolist()}
        found["probability"] = float(density.probability(*sides))
        lines.append(f"{label} = {found['probability']:.6g}")
    if arguments.mean or is_summary:
        found["mean"] = columns["mean"] = density.mean().tolist()
    if is_summary:
        found["standard_deviation"] = (density.cov().diagonal().clip(min=0.0) ** 0.5).tolist()
        columns["standard deviation"] = found["standard_deviation"]
    if arguments.mode:
        found["mode"] = columns["mode"] = density.mode().tolist()
    if levels := _SUMMARY if is_summary else arguments.quantile:
        d = len(view.features)
        marginals = [density] if d == 1 else [density.marginal([j]) for j in range(d)]
        rows = np.transpose([marginal.ppf(np.array(levels)) for marginal in marginals]).tolist()
        found["quantiles"] = [
            {"level": level, "values": row} for level, row in zip(levels, rows, strict=True)
        ]
        columns |= {f"quantile {level:g}": row for level, row in zip(levels, rows, strict=True)}
    if arguments.cov:
        found["covariance"] = density.cov().tolist()
        named = zip(view.names, found["covariance"], strict=True)
        columns |= {f"cov with {name}": row for name, row in named}
    if columns:
        lines += [f"given {view.condition()}"] if view.given else []
        cells = [
            [f"{column[i]:.6g}" for column in columns.values()] for i in range(len(view.names))
        ]
        table = [[name, *row] for name, row in zip(view.names, cells, strict=True)]
        lines += aligned([["feature", *columns], *table])
    if output is not None:
        density.save(output)
        lines.append(f"written: {output}")
    return console.answer(arguments.json, {**view.described(), **found, "output": output}, lines)


def _event(view: View, low: np.ndarray, high: np.ndarray) -> str:
    """What the box says, such as P(mpg ≥ 20 | hp = 100)."""
    parts = []
    for name, a, b in zip(view.names, low.tolist(), high.tolist(), strict=True):
        if a == b and view.density.measure.atoms is None:  # elsewhere a point has no mass
            raise ValueError(
                f"the box is empty: --low must be less than --high, but of {name} they are {a!r}"
                f" and {b!r}"
            )
        below, above = np.isfinite(a), np.isfinite(b)
        if below and above:
            parts.append(f"{a:g} ≤ {name} ≤ {b:g}")
        elif below or above:
            parts.append(f"{name} ≥ {a:g}" if below else f"{name} ≤ {b:g}")
    given = f" | {view.condition()}" if view.given else ""
    return f"P({', '.join(parts) or 'all'}{given})"
