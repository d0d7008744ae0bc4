"""What ``ksos fit`` prints: the rows, the density and its certificate, for a reader and for a
program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ksos import KernelSoSDensity, KernelSoSDensityCV, Solution
from ksos.cli.composition import Composition
from ksos.data import Stream, Table, find_columns
from ksos.estimators.search import MOST_SAMPLES

__all__ = [
    "certificate_line",
    "described_fit",
    "lines_of_fit",
    "rows_line",
    "shortened",
    "solver_line",
]

_SHOWN = 6  # names of columns
_SCORES = {
    "log_likelihood": "nats per row",
    "l2": "(2p − ∫p², per row)",
    "mmd": "(minus the squared MMD)",
}
_OBJECTIVES = {"squared_mmd": " (squared MMD)", "mmd": " (MMD)"}

Estimator = KernelSoSDensity | KernelSoSDensityCV
Rows = Table | Stream


def described_fit(
    estimator: Estimator, table: Rows, weights: str | None, output: str, status: str
) -> dict[str, Any]:
    """For a program, in full precision."""
    solution, saved = estimator.solution_, Composition.of(estimator.distribution_)
    names = None if table.names is None else list(table.names)
    value: dict[str, Any] = {
        "output": output,
        "method": "mmd" if isinstance(estimator, KernelSoSDensity) else "search",
        "n_samples": table.n_samples,
        "n_dropped": table.n_dropped,
        "n_features": table.n_features,
        "feature_names": names,
        "dropped_columns": _dropped(table, weights),
        **saved.described(),
        "bandwidth": np.asarray(estimator.bandwidth_).tolist(),
        "regularization": float(estimator.regularization_),
    }
    if isinstance(estimator, KernelSoSDensityCV):
        value |= {name: float(number) for name, number in estimator.best_params_.items()}
        value |= {"held_out_score": float(estimator.best_score_), "n_folds": estimator.n_splits_}
        value |= {
            "reference_gap": (
                None if estimator.reference_ is None else float(estimator.reference_gap_)
            )
        }
    else:
        value |= {
            "n_landmarks": estimator.landmarks_.shape[0],
            "embedding_bandwidth": estimator.embedding_bandwidth_.tolist(),
        }
        value |= {"relative_regularization": float(estimator.relative_regularization_)}
    return {**value, **solution.summary(), "time": solution.time, "status": status}


def lines_of_fit(
    estimator: Estimator, table: Rows, weights: str | None, output: str, *, verbose: bool
) -> list[str]:
    """For a reader."""
    solution, saved = estimator.solution_, Composition.of(estimator.distribution_)
    searched = isinstance(estimator, KernelSoSDensityCV)
    lines = [rows_line(table, searched), _columns(table, weights)]
    if isinstance(estimator, KernelSoSDensityCV):
        lines.append(_score(estimator))
    if saved.n_components:
        of = (
            "a Gaussian"
            if saved.n_components == 1
            else f"a mixture of {saved.n_components} Gaussians"
        )
        certain = isinstance(estimator, KernelSoSDensityCV) and estimator.reference in (
            "auto",
            "mixture",
        )
        gap = (
            f", its weights within {_bound(estimator.reference_gap_)} nats of the best"
            if certain
            else ""
        )
        lines.append(f"reference: {of}{gap}")
    if saved.is_reference:
        lines.append(f"density: the reference itself (λ = ∞), rank {saved.rank}")
    else:
        what = "the reference, corrected by " if saved.n_components else ""
        support = f"{saved.n_support} support point{'s' if saved.n_support > 1 else ''}"
        lines.append(
            f"density: {what}a kernel sum of squares of rank {saved.rank}, {support},"
            f" {_strength(estimator)}"
        )
    lines.append(certificate_line(estimator))
    if verbose:
        lines.append(solver_line(solution))
        lines.append(f"kernel: {solution.space.kernel!r}")
    return [*lines, f"written: {output}"]


def rows_line(table: Rows, searched: bool) -> str:
    """How many rows were read and dropped."""
    n, dropped = table.n_samples, table.n_dropped
    if n is None:
        return "rows: those of the checkpoint"
    total = (
        f"{n:,}"
        if not dropped
        else f"{n:,} of {n + dropped:,} ({dropped:,} dropped: missing cells)"
    )
    few = (
        f"; the model is fitted to a subsample of at most {MOST_SAMPLES:,} distinct rows"
        if searched and n > MOST_SAMPLES
        else ""
    )
    return f"rows: {total}{few}"


def _columns(table: Rows, weights: str | None) -> str:
    d, dropped = table.n_features, _dropped(table, weights)
    names = "" if table.names is None else f" ({shortened(table.names)})"
    lost = f"; dropped: {shortened(dropped)}" if dropped else ""
    return f"columns: {d}{names}{lost}"


def shortened(names: Sequence[str]) -> str:
    """Names, separated by commas; of many the first ones.

    >>> shortened(["a", "b"])
    'a, b'
    """
    return ", ".join(
        [*names[:_SHOWN], *([f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else [])]
    )


def _dropped(table: Rows, weights: str | None) -> list[str]:
    """The names of columns that are neither features nor weights; none if the table has no names."""
    if table.header is None or table.names is None:
        return []
    words, width = [] if weights is None else [weights], len(table.header)
    masses = find_columns(words, table.header, width, table.source)
    used = [*table.names, *(table.header[k] for k in masses)]
    return [name for name in table.header if name not in used]


def _score(estimator: KernelSoSDensityCV) -> str:
    if not math.isfinite(estimator.best_score_):
        return "held-out score: none, nothing was compared"
    return (
        f"held-out score: {estimator.best_score_:.5g} {_SCORES[estimator.criterion]},"
        f" {estimator.n_splits_} folds"
    )


def _strength(estimator: Estimator) -> str:
    """λ, in the units in which it was chosen."""
    if isinstance(estimator, KernelSoSDensityCV):
        unit = "w₀" if estimator.reference_ is None else "∫k²dρ"
        return f"λ = {estimator.best_params_['relative_regularization']:.3g} (units of {unit})"
    return f"λ = {estimator.regularization_:.3g}"


def solver_line(solution: Solution) -> str:
    """How the certificate was found."""
    took = f"{solution.status} in {solution.n_iter} iterations and {solution.time:.2f} s"
    return f"solver: {solution.solver}, {took}, objective {solution.objective:.6e}"


def certificate_line(estimator: Estimator) -> str:
    """How far the saved density can be from the optimum."""
    solution = estimator.solution_
    if solution.gap is None or not math.isfinite(solution.gap):
        return (
            "certified: not yet, there is no bound on the distance from the optimum"
            f" ({solution.status})"
        )
    objective = estimator.objective if isinstance(estimator.objective, str) else ""
    unit, of = " nats" if objective == "likelihood" else "", _OBJECTIVES.get(objective, "")
    early = "" if solution.status == "solved" else f" ({solution.status})"
    return f"certified: within {_bound(solution.gap)}{unit} of the optimum{of}{early}"


def _bound(gap: float) -> str:
    return "0" if gap == 0.0 else f"{gap:.1e}"
