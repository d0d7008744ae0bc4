"""What a density is made of and what its fit guarantees, for a program and for a reader."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ksos import KernelSoSDensityCV, Solution
from ksos.cli.console import described
from ksos.data import Stream, Table, find_columns
from ksos.estimators.search import MOST_SAMPLES

_MOST_NAMES = 6  # of columns on a line, which must stay one line
_UNITS = {
    "log_likelihood": "nats per row",
    "l2": "(2p − ∫p², per row)",
    "mmd": "(minus the squared MMD)",
}
_DISTANCES = {"squared_mmd": " (squared MMD)", "mmd": " (MMD)"}


def composition(density: Any) -> dict[str, Any]:
    """The sizes, the kernel and the measure of a density.

    ``n_components`` counts the Gaussians of the reference, and is 0 if there is none; of a mixture
    it counts the components. ``n_support`` is 0 if the density is the reference itself.
    """
    d, m = density.n_features, density.support_points.shape[0]
    if hasattr(density, "factor"):
        normals = None if density.constant is None else density.measure.normals(d)
        n = 0 if normals is None else len(normals.weights)
        m = m if n == 0 or density.factor.any() else 0
    else:  # a mixture has no single factor
        n = len(density.components)
    return {
        "n_components": n,
        "n_support": m,
        "rank": density.rank,
        "kernel": described(density.kernel, d),
        "measure": described(density.measure, d),
    }


def fit_value(estimator: Any, table: Table | Stream, weights: str | None) -> dict[str, Any]:
    """A fit of a density for a program, in full precision."""
    names = None if table.names is None else list(table.names)
    value: dict[str, Any] = {
        "n_samples": table.n_samples,
        "n_dropped": table.n_dropped,
        "n_features": table.n_features,
        "feature_names": names,
        "dropped_columns": _dropped(table, weights),
        **composition(estimator.distribution_),
        "bandwidth": np.asarray(estimator.bandwidth_).tolist(),
        "regularization": float(estimator.regularization_),
    }
    if isinstance(estimator, KernelSoSDensityCV):
        value |= {name: float(number) for name, number in estimator.best_params_.items()}
        value |= {
            "held_out_score": float(estimator.best_score_),
            "n_folds": estimator.n_splits_,
            "reference_gap": (
                None if estimator.reference_ is None else float(estimator.reference_gap_)
            ),
        }
    else:
        value |= {
            "n_landmarks": estimator.landmarks_.shape[0],
            "embedding_bandwidth": estimator.embedding_bandwidth_.tolist(),
            "relative_regularization": float(estimator.relative_regularization_),
        }
    return {**value, **estimator.solution_.summary(), "time": estimator.solution_.time}


def fit_lines(estimator: Any, table: Table | Stream, weights: str | None) -> list[str]:
    """The same for a reader."""
    made, searched = composition(estimator.distribution_), isinstance(estimator, KernelSoSDensityCV)
    dropped, n, m = _dropped(table, weights), made["n_components"], made["n_support"]
    names = "" if table.names is None else f" ({shortened(table.names)})"
    lost = f"; dropped: {shortened(dropped)}" if dropped else ""
    lines = [rows_line(table, searched), f"columns: {table.n_features}{names}{lost}"]
    if searched and math.isfinite(estimator.best_score_):
        lines.append(
            f"held-out score: {estimator.best_score_:.5g} {_UNITS[estimator.criterion]},"
            f" {estimator.n_splits_} folds"
        )
    elif searched:
        lines.append("held-out score: none, nothing was compared")
    if n:
        proven = searched and estimator.reference in ("auto", "mixture")
        of = "a Gaussian" if n == 1 else f"a mixture of {n} Gaussians"
        if proven:
            of += f", its weights within {_bound(estimator.reference_gap_)} nats of the best"
        lines.append(f"reference: {of}")
    if searched:
        unit = "w₀" if estimator.reference_ is None else "∫k²dρ"
        strength = f"{estimator.best_params_['relative_regularization']:.3g} (units of {unit})"
    else:
        strength = f"{estimator.regularization_:.3g}"
    corrected = "the reference, corrected by " if n else ""
    lines.append(
        f"density: the reference itself (λ = ∞), rank {made['rank']}"
        if n and not m
        else f"density: {corrected}a kernel sum of squares of rank {made['rank']}, {m} support"
        f" point{'s' if m > 1 else ''}, λ = {strength}"
    )
    return [*lines, certificate_line(estimator)]


def rows_line(table: Table | Stream, searched: bool) -> str:
    """How many rows were read and dropped."""
    n, dropped = table.n_samples, table.n_dropped
    if n is None:
        return "rows: those of the checkpoint"
    of = f" of {n + dropped:,} ({dropped:,} dropped: missing cells)" if dropped else ""
    few = f"; the model is fitted to a subsample of at most {MOST_SAMPLES:,} distinct rows"
    return f"rows: {n:,}{of}{few if searched and n > MOST_SAMPLES else ''}"


def shortened(names: Sequence[str]) -> str:
    """Names, separated by commas; of many the first ones.

    >>> shortened(["a", "b"])
    'a, b'
    """
    more = len(names) - _MOST_NAMES
    return ", ".join([*names[:_MOST_NAMES], *[f"and {more} more"] * (more > 0)])


def _dropped(table: Table | Stream, weights: str | None) -> list[str]:
    """The names of columns that are neither features nor weights; none in a table without names."""
    if table.header is None or table.names is None:
        return []
    words = [] if weights is None else [weights]
    places = find_columns(words, table.header, len(table.header), table.source)
    used = {*table.names, *(table.header[k] for k in places)}
    return [name for name in table.header if name not in used]


def solver_line(solution: Solution) -> str:
    """How the certificate was found."""
    took = f"{solution.status} in {solution.n_iter} iterations and {solution.time:.2f} s"
    return f"solver: {solution.solver}, {took}, objective {solution.objective:.6e}"


def certificate_line(estimator: Any) -> str:
    """How far the saved density can be from the optimum."""
    gap, status = estimator.solution_.gap, estimator.solution_.status
    if gap is None or not math.isfinite(gap):
        return f"certified: not yet, there is no bound on the distance from the optimum ({status})"
    objective = estimator.objective if isinstance(estimator.objective, str) else ""
    unit = " nats" if objective == "likelihood" else ""
    early = "" if status == "solved" else f" ({status})"
    of = _DISTANCES.get(objective, "")
    return f"certified: within {_bound(gap)}{unit} of the optimum{of}{early}"


def _bound(gap: float) -> str:
    return "0" if gap == 0.0 else f"{gap:.1e}"
