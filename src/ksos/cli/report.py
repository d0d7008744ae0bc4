"""What a density is made of and what its fit guarantees, for a program and for a reader."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ksos import KernelSoSDensityCV, Solution, TableDensity
from ksos.cli.console import described
from ksos.data import Stream, Table, find_columns
from ksos.estimators.search import MOST_SAMPLES

_MOST_NAMES = 6  # of columns in a message, which must stay one line
_UNITS = {
    "log_likelihood": "nats per row",
    "l2": "(2p − ∫p², per row)",
    "mmd": "(minus the squared MMD)",
}
_DISTANCES = {"squared_mmd": " (squared MMD)", "mmd": " (MMD)"}


def composition(density: Any) -> dict[str, Any]:
    """The sizes, the kernel and the measure of a density.

    ``n_components`` counts the Gaussians of the reference, and is 0 if there is none; ``n_support``
    is 0 if the density is the reference itself. In a mixture of several parts both are sums.
    """
    n = m = 0
    if isinstance(density, TableDensity):
        corrections = [terms.correction for _, terms in density.parts]
        return {
            "n_components": sum(len(terms.reference.weights) for _, terms in density.parts),
            "n_support": sum(len(one.points) for one in corrections if not one.is_silent),
            "rank": sum(one.factor.shape[1] for one in corrections),
            "kernel": {"name": "gaussian"},
            "measure": {"name": "lebesgue"},
            "kinds": {column.name: column.kind for column in density.columns.listed},
        }
    for _, term in density.terms.on_host.weighted:
        part = term.joint
        normals = None if part.unit_constant is None else part.measure.normals(part.n_features)
        n += 0 if normals is None else len(normals.weights)
        m += part.support_points.shape[0] if normals is None or part.unit_factor.any() else 0
    d = density.n_features
    return {
        "n_components": n,
        "n_support": m,
        "rank": density.rank,
        "kernel": described(density.kernel, d),
        "measure": described(density.measure, d),
    }


def fit_value(estimator: Any, table: Table | Stream, weights: str | None) -> dict[str, Any]:
    """A fit of a density for a program, in full precision."""
    solution, header, names = estimator.solution_, table.header or (), list(table.names or ())
    words = [weights] if weights and names else []
    places = find_columns(words, header, len(header), table.source)
    used = {*names, *(header[k] for k in places)}
    value: dict[str, Any] = {
        "n_samples": table.n_samples,
        "n_dropped": table.n_dropped,
        "n_features": table.n_features,
        "feature_names": names or None,
        "dropped_columns": [name for name in header if names and name not in used],
        **composition(estimator.distribution_),
        "bandwidth": np.asarray(estimator.bandwidth_).tolist(),
        "regularization": float(estimator.regularization_),
    }
    if isinstance(estimator, KernelSoSDensityCV):
        value |= {name: float(number) for name, number in estimator.best_params_.items()}
        corrects = estimator.reference_ is not None
        value |= {
            "held_out_score": float(estimator.best_score_),
            "n_folds": estimator.n_splits_,
            "reference_gap": float(estimator.reference_gap_) if corrects else None,
        }
    else:
        value |= {
            "n_landmarks": estimator.landmarks_.shape[0],
            "embedding_bandwidth": estimator.embedding_bandwidth_.tolist(),
            "relative_regularization": float(estimator.relative_regularization_),
        }
    return {**value, **solution.summary(), "time": solution.time}


def fit_lines(value: dict[str, Any], estimator: Any) -> list[str]:
    """The same for a reader."""
    searched = isinstance(estimator, KernelSoSDensityCV)
    n, m, rank = value["n_components"], value["n_support"], value["rank"]
    names, dropped = value["feature_names"], value["dropped_columns"]
    named = f" ({shortened(names)})" if names else ""
    lost = f"; dropped: {shortened(dropped)}" if dropped else ""
    lines = [rows_line(value, searched), f"columns: {value['n_features']}{named}{lost}"]
    if "kinds" in value:
        listed = [f"{name} {kind}" for name, kind in value["kinds"].items()]
        lines.append(f"kinds: {', '.join(listed)}")
    strength, reference = f"{value['regularization']:.3g}", "a Gaussian"
    if n > 1:
        reference = f"a mixture of {n} Gaussians"
    if searched:
        score = "none, nothing was compared"
        if math.isfinite(value["held_out_score"]):
            unit = _UNITS[estimator.criterion]
            score = f"{value['held_out_score']:.5g} {unit}, {value['n_folds']} folds"
        lines.append(f"held-out score: {score}")
        unit = "w₀" if estimator.reference_ is None else "∫k²dρ"
        strength = f"{value['relative_regularization']:.3g} (units of {unit})"
        if n and estimator.reference in ("auto", "mixture"):
            gap = _bound(value["reference_gap"])
            reference += f", its weights within {gap} nats of the best"
    made = f"a kernel sum of squares of rank {rank}, {m} support point{'s' if m > 1 else ''}"
    made += f", λ = {strength}"
    if n:
        lines.append(f"reference: {reference}")
        made = f"the reference, corrected by {made}"
    if n and not m:
        made = f"the reference itself (λ = ∞), rank {rank}"
    return [*lines, f"density: {made}", certificate_line(estimator)]


def rows_line(value: dict[str, Any], searched: bool = False) -> str:
    """How many rows were read and dropped."""
    n, dropped = value["n_samples"], value["n_dropped"]
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
