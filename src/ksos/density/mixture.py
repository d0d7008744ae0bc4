"""Mixtures of densities, and Gaussian mixtures as densities."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from scipy.linalg import block_diag

from ksos.density.density import SoSDensity, from_terms
from ksos.density.questions import condition
from ksos.density.square import Square, assemble
from ksos.density.terms import Term, Terms
from ksos.ground import as_weights, is_numpy, like, order_of
from ksos.kernels import Gaussian
from ksos.measures import GaussianMixture, Lebesgue, Measure


def mixture(densities: Any, weights: Any = None) -> SoSDensity:
    r"""The distribution Σ_a w_a p_a of densities of the same features.

    Kernels and measures may differ. Over one kernel and one measure the mixture is one sum of
    squares, B = Σ_a w_a B_a block by block.

    Parameters
    ----------
    densities : sequence of SoSDensity or fitted sklearn.mixture.GaussianMixture
        Discrete measures mix with the same discrete measure only.
    weights : array of floats, optional
        Nonnegative, scaled to sum one. Default: equal ones.

    >>> from ksos.kernels import Gaussian
    >>> left, right = (SoSDensity(Gaussian(2.0), [[x]], [[1.0]], normalize=True) for x in (-3, 3))
    >>> p = mixture([left, right], [1, 3])
    >>> p.mean().round(12)
    array([1.5])
    >>> p
    SoSDensity(d=1, m=2, rank=2, kernel=Gaussian(sigma=2.0), measure=Lebesgue())
    """
    every = _as_densities(densities)
    shares, first = as_weights(weights, len(every), "weights"), every[0]
    names, home = first.feature_names, first.terms.home
    used = [(w, p.terms.on_host) for w, p in zip(shares.tolist(), every, strict=True) if w > 0.0]
    squares = [p.own for _, p in used]
    if all(_alike(squares[0], one) for one in squares):
        terms = _one_square([(w, one) for (w, _), one in zip(used, squares, strict=True)])
    else:
        # terms that answer questions: squares relative to normal densities go by volume
        parts = [(w * v, term) for w, p in used for v, term in p.parts]
        measures = [p.measure.for_features(p.n_features) for _, p in used]
        # densities that share no measure mix by volume
        measure = measures[0] if all(one == measures[0] for one in measures) else Lebesgue()
        terms = Terms(Terms(parts, measure).parts, measure, check=True)
    if not is_numpy(home):
        terms = terms.moved(lambda array: like(array, home))
    return from_terms(terms, names)


def _one_square(squares: list[tuple[float, Any]]) -> Terms:
    first = squares[0][1]
    points = np.concatenate([p.support_points for _, p in squares])
    log_rows = np.concatenate(
        [np.full(p.support_points.shape[0], 0.5 * (np.log(w) - p.log_unit)) for w, p in squares]
    )
    F = block_diag(*(p.unit_factor for _, p in squares))
    _, mixed = assemble(first.kernel, points, first.measure, F, log_rows)
    return Terms([(1.0, mixed)], first.measure)


def _as_densities(densities: Any) -> list[SoSDensity]:
    every = list(densities) if isinstance(densities, Iterable) else [densities]
    for a, p in enumerate(every):
        if hasattr(p, "covariances_"):  # a fitted mixture, whatever its covariance type
            every[a] = p = reference_density(GaussianMixture.from_sklearn(p)).by_volume()
        if not isinstance(p, SoSDensity):
            raise TypeError(f"densities must be a list of SoSDensity; got {p!r}")
    if not every:
        raise ValueError("densities must hold at least one density; got none")
    d = every[0].n_features
    for a, p in enumerate(every):
        if p.n_features != d:
            raise ValueError(
                f"a mixture needs densities of the same features: density 0 has {d} features, but"
                f" density {a} has {p.n_features}"
            )
    names = next((p.feature_names for p in every if p.feature_names is not None), None)
    found = []
    for a, p in enumerate(every):
        order, terms = order_of(p.feature_names, names, f"density {a}"), p.terms
        terms = terms if order is None else condition.marginal(terms.on_host, order)
        found.append(from_terms(terms, names))
    return found


def _alike(first: Term | None, other: Term | None) -> bool:
    """Whether both are squares without a constant whose mixture is one square."""
    if not (isinstance(first, Square) and isinstance(other, Square)):
        return False
    d = first.n_features
    return bool(
        first.unit_constant is None
        and other.unit_constant is None
        and first.kernel.with_sigma(1.0) == other.kernel.with_sigma(1.0)
        and np.array_equal(first.kernel.matrix(d), other.kernel.matrix(d))
        and first.measure.for_features(d) == other.measure.for_features(d)
    )


def reference_density(measure: Measure) -> SoSDensity:
    """p = 1 relative to a mixture of normal densities: the constant and nothing else."""
    normals = measure.normals(measure.n_features or 1)
    if normals is None:
        raise ValueError(f"a Normal or GaussianMixture measure is needed; got {measure!r}")
    kernel, points = Gaussian(4.0 * normals.covariances[0]), np.array(normals.means[:1])
    return from_terms(Square(kernel, points, np.zeros((1, 1)), 0.0, measure, np.ones(1)))
