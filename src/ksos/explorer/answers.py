"""What a page gets: plain numbers from the library's own methods, nothing computed in another
way.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from ksos.density import SoSDensity, TableDensity, square_of
from ksos.estimators import OBJECTIVES
from ksos.explorer.session import (
    MOST_FEATURES,
    MOST_SUPPORT,
    REFERENCES,
    WIDEST,
    Fitted,
    Samples,
    Tab,
)
from ksos.ground import as_count, to_numpy
from ksos.kernels import KERNELS, Laplace, Matern
from ksos.space.embedding import MeanEmbedding, mmd

MASSES = (0.5, 0.9)
"""The highest-density regions that are drawn."""

_SHOWN_ROWS = 2000  # more dots are one dark patch, and slow the page down
_MOST_SAMPLES = 5000  # the same for samples, which a page draws only once
_MARGIN = 0.15  # of the range of the samples, for the tails
_LINE = 201  # points of a curve: one per three pixels
# the same of the page for one and for two features
_PAGE = {1: 401, 2: 81}
_FAR = 1e299  # sides of a box that a page means as infinite
_SIDE = 41  # points along a side of the panel of a pair, which has 150 pixels
_QUANTILES = (0.05, 0.5, 0.95)  # the median and an interval that holds nine of ten
_EXACT_OPERATIONS = 1e11  # of an exact MMD, a few seconds: a page that waits longer seems broken


def described(data: Samples) -> dict[str, Any]:
    """The samples and what can be chosen; of a slider its ends, its step and where it begins: of σ
    by powers of 2, of λ by powers of 10.
    """
    n, d = data.points.shape
    shown = np.sort(np.random.default_rng(0).permutation(n)[:_SHOWN_ROWS])
    most, widest = min(MOST_SUPPORT, n - data.n_held_out), math.log2(WIDEST)
    sliders = {
        "scale": [-widest, widest, 0.05, 0],
        "strength": [-9, 3, 0.1, -3],
        # rows with gaps take longer
        "support": [min(2, most), most, 1, min(50 if np.isnan(data.points).any() else 100, most)],
    }
    columns = None if data.columns is None else data.columns.listed
    limits = {"features": MOST_FEATURES, "samples": _MOST_SAMPLES}
    return {
        "names": list(data.names),
        "n": n,
        "n_held_out": data.n_held_out,
        "points": [[_finite(x) for x in row] for row in data.points[shown].tolist()],
        "levels": [[str(one) for one in c.levels] for c in columns or ()],
        "ranges": [list(_range(data, k)) for k in range(d)],
        "sliders": sliders,
        "limits": limits,
        "objectives": ["likelihood"] if columns else list(OBJECTIVES),
        "references": ["mixture"] if columns else list(REFERENCES),
        "kernels": ["gaussian"] if columns else list(KERNELS),
        "masses": list(MASSES),
        "note": "",
    }


# The part of the axis that is drawn: the samples with a margin.
def _range(data: Samples, feature: int) -> tuple[float, float]:
    if n := _levels(data, feature):
        return -0.5, n - 0.5
    x = data.points[:, feature]
    x = x[~np.isnan(x)]
    low, high = float(x.min()), float(x.max())
    margin = _MARGIN * (high - low) if high > low else max(1.0, abs(low))
    return low - margin, high + margin


# How many levels a category has, 0 for a number.
def _levels(data: Samples, feature: int) -> int:
    return 0 if data.columns is None else len(data.columns.listed[feature].levels)


# The density on a grid; around the number of a level, its probability.
def _on_grid(p: Any, data: Samples, features: Any, axes: Sequence[np.ndarray]) -> list[float]:
    points = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, len(axes))
    for column, k in zip(points.T, features, strict=True):
        if n := _levels(data, k):
            column[:] = np.clip(np.rint(column), 0, n - 1)
    if not isinstance(p, TableDensity):
        return list(to_numpy(p.with_feature_names(None).pdf(points)).tolist())
    return list(p.pdf(p.columns.frame(points)).tolist())


def fit(fitted: Fitted, data: Samples) -> dict[str, Any]:
    """The certificate, what was chosen, and if there are at most two features the model itself, or
    its values on the grid of the page.
    """
    solution, parameters = fitted.solution, fitted.parameters
    space: Any = solution.space
    features, projected, values = fitted.settings.features, None, None
    mixed, d = isinstance(fitted.density, TableDensity), len(features)
    if not mixed and data.columns is None:
        kernel, landmarks = space.embedding_kernel, space.landmarks
        projected = mmd(solution.distribution, _target(fitted, data), kernel, landmarks)
    if mixed and d <= 2:
        axes = [np.linspace(*_range(data, k), _PAGE[d]) for k in features]
        values = _on_grid(fitted.density, data, features, axes)
    normals = space.reference if mixed else space.measure.normals(d)
    return {
        "values": values,
        "features": list(features),
        "scale": fitted.settings.scale,
        "n_support": len(space.correction.points if mixed else space.support_points),
        "bandwidth": parameters["bandwidth"],
        "regularization": parameters["relative_regularization"],
        "n_components": None if normals is None else len(normals.weights),
        "status": solution.status,
        "solver": solution.solver,
        "n_iter": solution.n_iter,
        "rank": solution.rank,
        "objective": solution.objective,
        "gap": _finite(solution.gap),
        "projected_mmd": projected,
        "score": _finite(fitted.score),
        "draft": fitted.settings.draft,
        "seconds": fitted.seconds,
        "processor_seconds": fitted.processor_seconds,
        "warnings": list(fitted.warned),
        "model": None if mixed or d > 2 else model(solution.distribution),
    }


# JSON has no infinities.
def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


# The embedding of the rows that were fitted.
def _target(fitted: Fitted, data: Samples) -> MeanEmbedding:
    X, weights = data.part(data.rows()[0], fitted.settings.features)
    return MeanEmbedding(
        X,
        None if weights is None else weights / weights.sum(),
        kernel=fitted.solution.space.embedding_kernel,
    )


def model(density: SoSDensity) -> dict[str, Any]:
    """The numbers of p(x) = ‖c + Fᵀk(x)‖²·ρ(x), from which a page evaluates the density by itself;
    its file density.js has the formula.

    k_i(x) = exp(−‖z‖²) with z = A(x − x̃_i); or, with a polynomial q, the product of
    ``q(|z_j|)exp(−|z_j|)`` over the features. ρ is 1, or Σ_j w_j exp(−‖A_j(x − m_j)‖²) over the
    normal densities of a reference.
    """
    d, kernel, square = density.n_features, density.kernel, square_of(density)
    normals, constant = density.measure.normals(d), square.unit_constant
    unit = math.exp(-0.5 * square.log_unit)
    laws = None
    if normals is not None:
        # ½ (x−m)ᵀV⁻¹(x−m) = ‖A(x−m)‖²
        roots = [np.linalg.inv(np.linalg.cholesky(2.0 * V)) for V in normals.covariances]
        rows = zip(normals.weights, normals.means, roots, strict=True)
        laws = [
            {
                "height": float(w * np.linalg.det(A) / math.pi ** (0.5 * d)),
                "mean": mean.tolist(),
                "root": A.tolist(),
            }
            for w, mean, A in rows
        ]
    q = kernel.polynomial if isinstance(kernel, Laplace | Matern) else None
    return {
        "support": density.support_points.tolist(),
        "factor": density.factor.tolist(),
        "laws": laws,
        "constant": None if constant is None else (unit * constant).tolist(),
        "root": np.linalg.inv(np.linalg.cholesky(kernel.matrix(d))).tolist(),
        "polynomial": None if q is None else q.tolist(),
    }


def details(tab: Tab, data: Samples) -> dict[str, Any]:
    """What takes longer than a fit: the levels of the highest-density regions and the exact MMD;
    stale as soon as the tab fits anew.
    """
    fitted, stop = tab.require_fitted(), tab.stop
    p: Any = fitted.solution.distribution
    found: dict[str, Any] = {"stale": False, "levels": [], "exact_mmd": None, "exact_mmd_why": ""}
    if isinstance(p, TableDensity) or data.columns is not None:
        return found | {"exact_mmd_why": "not computed for tables with text or gaps"}
    if p.n_features <= 2:
        for mass in MASSES:
            found["levels"].append({"mass": mass, "level": float(p.hdr_level(mass, rng=0))})
    try:
        kernel = fitted.solution.space.embedding_kernel
        found["exact_mmd"] = mmd(
            p, _target(fitted, data), kernel=kernel, max_operations=_EXACT_OPERATIONS
        )
    except (ValueError, MemoryError) as error:
        found["exact_mmd_why"] = str(error)
    return found | {"stale": stop.is_set()}


def progress(tab: Tab) -> dict[str, Any]:
    """The last certificate of the fit that runs."""
    if (seen := tab.progress) is None:
        return {"n_iter": 0}
    return {
        "n_iter": seen.n_iter,
        "objective": seen.objective,
        "gap": _finite(seen.gap),
        "seconds": seen.time,
    }


def conditional(
    fitted: Fitted, data: Samples, feature: Any = None, value: Any = None
) -> dict[str, Any]:
    """The density of one of two features given a value of the other, which is number 0 or 1."""
    if (shown := len(fitted.settings.features)) != 2:
        raise ValueError(f"a conditional needs two features; {shown} are shown")
    if feature not in (0, 1) or isinstance(feature, bool):
        raise ValueError(
            f"feature must be 0 or 1, the first or the second that is shown; got {feature!r}"
        )
    other, features = 1 - int(feature), fitted.settings.features
    value = _value(data, features[int(feature)], value)
    p = fitted.density.conditional({int(feature): value})
    x = np.linspace(*_range(data, features[other]), _LINE)
    pdf = _on_grid(p, data, [features[other]], [x])
    found = {"x": x.tolist(), "pdf": pdf, "other": other, "mean": None, "quantiles": []}
    if _levels(data, features[other]):
        return found | {"probabilities": np.ravel(p.probabilities(0)).tolist()}
    return found | {
        "mean": float(np.ravel(p.mean())[0]),
        "quantiles": [[q, float(p.ppf(q))] for q in _QUANTILES],
    }


# The level that a number stands for, of a category.
def _value(data: Samples, feature: int, value: Any) -> Any:
    if data.columns is None or not (n := _levels(data, feature)):
        return value
    if value not in range(n):
        raise ValueError(f"a level has a number from 0 to {n - 1}; got {value!r}")
    return data.columns.listed[feature].levels[int(value)]


def box(fitted: Fitted, data: Samples, low: Any = None, high: Any = None) -> dict[str, Any]:
    """P(low ≤ x ≤ high); of a category, ``low`` is the number of its level."""
    if isinstance(fitted.density, TableDensity):
        features = fitted.settings.features
        below = {k: _value(data, f, low[k]) for k, f in enumerate(features) if abs(low[k]) < _FAR}
        numbers = [k for k, f in enumerate(features) if not _levels(data, f)]
        low, high = below, {k: high[k] for k in numbers}
    return {"probability": float(fitted.density.probability(low, high))}


def samples(fitted: Fitted, _: Samples, size: Any = None, seed: Any = 0) -> dict[str, Any]:
    """Independent samples of the density."""
    if (n := as_count(size, "size")) > _MOST_SAMPLES:
        raise ValueError(f"size must be at most {_MOST_SAMPLES}; got {n}")
    p = fitted.density
    found = p.rvs(n, as_count(seed, "seed", minimum=0))
    cells = p.columns.read(found) if isinstance(p, TableDensity) else to_numpy(found)
    return {"samples": cells.tolist()}


def pairs(fitted: Fitted, data: Samples) -> dict[str, Any]:
    """The marginals of all features and of all pairs of them, on grids over what is drawn."""
    p, features = fitted.density, fitted.settings.features
    axes = [np.linspace(*_range(data, k), _SIDE) for k in features]

    def seen(*chosen: int) -> list[float]:
        own = [features[i] for i in chosen], [axes[i] for i in chosen]
        return _on_grid(p.marginal(list(chosen)), data, *own)

    found = [{"pair": [i, j], "pdf": seen(i, j)} for i, j in combinations(range(len(features)), 2)]
    return {"side": _SIDE, "singles": [seen(i) for i in range(len(features))], "pairs": found}


def model_file(density: SoSDensity) -> bytes:
    """What :meth:`SoSDensity.save` writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.ksos"
        density.save(path)
        return path.read_bytes()


def program(fitted: Fitted, data: Samples) -> dict[str, str]:
    """The lines of Python that make the same fit."""
    features, n_held_out = list(fitted.settings.features), data.n_held_out
    weights, held_weights = (
        "" if data.weights is None else f", sample_weight=sample_weight[{rows}]"
        for rows in ("fitted", "held_out")
    )
    given = "".join(
        f"    {name}={value!r},\n" for name, value in fitted.parameters.items() if value is not None
    )
    mixed = isinstance(fitted.density, TableDensity) or data.columns is not None
    at = ".iloc" if mixed else ""
    chosen = (
        f"X[{[data.names[k] for k in features]!r}]" if mixed else f"np.asarray(X)[:, {features}]"
    )
    naming = "" if mixed else f".with_feature_names({[data.names[k] for k in features]!r})"
    held = f"print(est.score(X{at}[held_out]{held_weights}))  # held out\n" if n_held_out else ""
    lines = (
        f"import numpy as np\nimport ksos\n\n{data.how_to_read}\nX = {chosen}\n"
        "order = np.random.default_rng(0).permutation(len(X))\n"
        f"fitted, held_out = np.sort(order[{n_held_out}:]), np.sort(order[:{n_held_out}])\n"
        f"est = ksos.KernelSoSDensity(\n{given}).fit(X{at}[fitted]{weights})\n"
        f"print(est.solution_.objective, est.solution_.gap)\n{held}"
        f"p = est.distribution_{naming}\n"
        "p.save('model.ksos')\n"
    )
    return {"program": lines}
