"""KernelSoSDensity: the note's density fitting as a scikit-learn estimator."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos._array import Array, eye, inner, is_other_array, like, namespace, to_numpy
from ksos._deadline import Deadline, set_up
from ksos._validation import (
    as_bandwidth,
    as_callback,
    as_choice,
    as_count,
    as_masses,
    as_nonnegative,
    as_points,
    as_positive,
    require_numbers,
)
from ksos.bandwidth import RULES, bandwidth_rule
from ksos.density import SoSDensity
from ksos.embedding import MeanEmbedding
from ksos.estimators._samples import as_generator, distinct_samples, mean_score, require_inside
from ksos.exceptions import BandwidthWarning
from ksos.functionals import MMD, Frobenius, Functional, NegativeLogLikelihood, SquaredMMD, Trace
from ksos.integrals import closed_form
from ksos.kernels import Kernel, kernel_form
from ksos.measures import Lebesgue, Measure
from ksos.solvers import Solver, minimize
from ksos.solvers.minimize import check_options
from ksos.space import SoSSpace
from ksos.support import SELECTIONS, pivoted_cholesky, select_support, unexplained

__all__ = ["DensityEstimator", "KernelSoSDensity"]

MOST_SUPPORT_POINTS = 200
"""``n_support=None`` means all distinct samples, up to this many."""

AUTO_REGULARIZATIONS = {"mmd": (1e-3, 3e-3), "likelihood": (1e-2, 0.3)}
"""``regularization="auto"`` in units of w₀; the second with ``bandwidth="auto"``, whose narrower kernels need more."""

OBJECTIVES: dict[str, Callable[[MeanEmbedding], Functional]] = {
    "squared_mmd": SquaredMMD,
    "mmd": MMD,
    "likelihood": lambda data: NegativeLogLikelihood(data.points, data.weights),
}
PENALTIES: dict[str, type[Trace] | type[Frobenius]] = {"trace": Trace, "frobenius": Frobenius}
_NEARLY_ONE, _NEARLY_ZERO = 0.95, 1e-3
_UNEXPLAINED, _WIDENINGS = 0.3, 4
_PER_SUPPORT_POINT = 10  # samples looked at: memory and time follow the support points, however many samples there are
_START_POINTS, _START_TOLERANCE = 40, 1e-3
_UNSEEN = 1e-14  # squared norm of the projected embedding of the data, of the order of 1 otherwise
_SET_UP_SHARE = 0.25  # of a time limit, for choosing the bandwidth, and then for the support points
_SEEN = 1e-3  # how much of every sample they must explain for a likelihood
_CUT = "time_limit was too short to choose all support points: the density has {} of them; allow more time, or set n_support"


class DensityEstimator(DensityMixin, BaseEstimator):
    """What a fitted density estimator answers, and the checks of the parameters that all of them have."""

    kernel: str | Kernel
    n_support: int | None
    measure: Measure | None
    tol: float
    time_limit: float | None
    verbose: int
    distribution_: SoSDensity

    def score_samples(self, X: Any) -> np.ndarray:
        """The log-density of each sample, shape (n,)."""
        check_is_fitted(self, "distribution_")
        if not is_other_array(X):
            X = validate_data(self, require_numbers(X), dtype=np.float64, order="C", reset=False)
        return self.distribution_.logpdf(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The mean log-density of the samples, weighted by ``sample_weight``."""
        return mean_score(to_numpy(self.score_samples(X)), sample_weight)

    def sample(self, n_samples: int = 1, random_state: Any = None) -> np.ndarray:
        """Independent samples of the fitted density, shape (n_samples, d)."""
        check_is_fitted(self, "distribution_")
        return self.distribution_.rvs(as_count(n_samples, "n_samples"), rng=as_generator(random_state))

    def _check_common(self) -> None:
        """Refuse what can be refused before the data are looked at."""
        kernel_form(self.kernel)
        if self.n_support is not None:
            as_count(self.n_support, "n_support")
        if self.measure is not None and not isinstance(self.measure, Measure):
            raise TypeError(f"measure must be a measure such as ksos.measures.Box(low, high), or None; got {self.measure!r}")
        as_positive(self.tol, "tol")
        if self.time_limit is not None:
            as_positive(self.time_limit, "time_limit")
        if not isinstance(self.verbose, bool):
            as_count(self.verbose, "verbose", minimum=0)


class KernelSoSDensity(DensityEstimator):
    r"""Density estimation with a kernel sum of squares, fitted in maximum mean discrepancy to a certified optimum.

    Solves min_B ‖P(w_data − w_{p_B})‖² + λ tr A over the densities p_B(x) = Σ_ij B_ij k(x,x̃_i) k(x,x̃_j), B ⪰ 0, ∫p_B dρ = 1.

    Parameters
    ----------
    kernel : {"gaussian", "laplace", "matern"} or Kernel
        The model kernel. A name takes its bandwidth from ``bandwidth`` (and for "laplace" and "matern", ν = 3/2, the product form, which is
        the one with closed-form integrals); of a kernel object its own sigma rules.
    bandwidth : float, array of d floats, or {"auto", "median", "scott", "silverman"}
        "auto": slightly more than what suits a kernel density estimate of left-out samples, in units of each feature's spread. It sees
        clusters and the boundary of the measure, but no outliers, and is wider if there are few support points. "median": the median
        distance between samples (of features whose spreads differ more than tenfold, in units of these); smooth, of low rank, and so the
        fastest. "scott", "silverman": 2h per feature, with h the rule's standard deviation.
    embedding_bandwidth : float or array, optional
        Bandwidth of the kernel in which MMD is measured. Default: the model's, as in the note.
    regularization : float or "auto"
        The note's λ on tr A. "auto": a ``relative_regularization`` of 1e-3, for the likelihood of 1e-2; with ``bandwidth="auto"``, whose
        kernels are narrower, of 3e-3 and 0.3.
    relative_regularization : float, optional
        Instead of it, λ in units of w₀ = ∫k(x,0)²dx (for "frobenius" of w₀²): a number that does not depend on the scale of the data.
    penalty : {"trace", "frobenius"}
        λ tr A or λ‖A‖²_HS.
    n_support : int, optional
        The most support points to use. Default: all distinct samples, up to 200.
    support : {"auto", "pivoted", "random", "kmeans"} or array (m, d)
        How to choose them among the samples; an array is used as it is. "auto" is "pivoted": it skips samples that add nothing at
        ``tol_model`` = 1e-10.
    landmarks : int or array (ℓ, d), optional
        Points on which embeddings are projected: an array, or how many random samples. Default: the support points, as in the note.
    measure : Measure, optional
        ρ. Default: Lebesgue on R^d. Densities are with respect to it.
    objective : {"squared_mmd", "mmd", "likelihood"} or Functional
        The MMD is bounded and takes any target; the likelihood, −Σ a_i log p(x_i), predicts best. A functional of your own
        replaces the distance to the data. The penalty is added to it.
    solver : {"auto", "low_rank", "interior_point", "lbfgs", "fista", "projected_gradient", "frank_wolfe"} or a solver object
    tol : float
        Absolute gap, in the objective's units.
    max_iter, callback, verbose
        See :func:`ksos.minimize`.
    time_limit : float, optional
        Seconds for the whole fit. The density of a fit that runs out of time is valid, with its gap in ``solution_``. A limit that is too
        short to choose all support points leaves some out, with a warning.
    random_state : int, RandomState or None
        For the random choices above.

    Attributes
    ----------
    distribution_ : SoSDensity
    solution_ : Solution
    bandwidth_, embedding_bandwidth_ : ndarray
        Scalar (0-dimensional) or one entry per feature.
    regularization_, relative_regularization_ : float
        The note's λ, and the same in units of w₀.
    support_points_, landmarks_ : ndarray
    n_iter_ : int
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> from sklearn.datasets import make_moons
    >>> X, _ = make_moons(100, noise=0.05, random_state=0)
    >>> est = KernelSoSDensity(bandwidth=1.0).fit(X)
    >>> est.solution_.status, bool(est.solution_.gap <= 1e-8)
    ('solved', True)
    """

    def __init__(
        self, kernel: str | Kernel = "gaussian", bandwidth: Any = "auto", embedding_bandwidth: Any = None,
        regularization: float | str = "auto", relative_regularization: float | None = None, penalty: str = "trace",
        n_support: int | None = None, support: Any = "auto", landmarks: Any = None, measure: Measure | None = None,
        objective: str | Functional = "squared_mmd", solver: str | Solver = "auto", tol: float = 1e-8, max_iter: int | None = None,
        time_limit: float | None = None, callback: Callable[..., Any] | None = None, random_state: Any = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.kernel, self.bandwidth, self.embedding_bandwidth = kernel, bandwidth, embedding_bandwidth
        self.regularization, self.relative_regularization, self.penalty = regularization, relative_regularization, penalty
        self.n_support, self.support, self.landmarks, self.measure = n_support, support, landmarks, measure
        self.objective, self.solver, self.tol = objective, solver, tol
        self.max_iter, self.time_limit, self.callback = max_iter, time_limit, callback
        self.random_state, self.verbose = random_state, verbose

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the density to samples ``X`` (n, d), weighted by ``sample_weight``.

        Ctrl-C stores the best density so far and is raised again.
        """
        return self._fit(X, sample_weight, Deadline.of(self.time_limit))

    @np.errstate(under="ignore")
    def _fit(self, X: Any, sample_weight: Any, deadline: Deadline) -> Self:
        """The same with a deadline that may be running already."""
        self._check_parameters()
        reference = X if is_other_array(X) else None  # a tensor: the fit runs where it lies, and decisions about it on the host
        X = validate_data(self, require_numbers(X) if reference is None else to_numpy(X), dtype=np.float64, order="C")
        masses = as_masses(sample_weight, X.shape[0])
        points, weights = distinct_samples(X, masses)
        rng, measure = as_generator(self.random_state), Lebesgue() if self.measure is None else self.measure
        require_inside(measure, X, masses)
        with set_up(deadline, _SET_UP_SHARE):
            kernel, embedding_kernel = self._kernels(points, weights, measure, rng)
        points = points if reference is None else like(points, reference)
        with set_up(deadline, _SET_UP_SHARE, _SEEN if self._by_likelihood else 0.0) as stage:
            support = self._support(points, weights, kernel, measure, rng)
        space = SoSSpace(kernel, support, measure, embedding_kernel, self._landmarks(points, rng))
        data = MeanEmbedding(points, weights, kernel=embedding_kernel)
        _warn_if_degenerate(kernel, space, points)
        _warn_if_unseen(data, space)
        start = _quick_mmd_fit(space, data, deadline) if self._by_likelihood else None
        told: dict[str, Any] = {"tol": self.tol, "max_iter": self.max_iter, "callback": self.callback, "verbose": self.verbose}
        self.solution_ = minimize(self._functional(data), space, solver=self.solver, time_limit=deadline, start=start, **told)
        self.bandwidth_, self.embedding_bandwidth_ = kernel.sigma, embedding_kernel.sigma
        self.regularization_, self.relative_regularization_ = self._strengths(space)
        self.support_points_, self.landmarks_ = space.support_points, space.landmarks
        self.distribution_, self.n_iter_ = self.solution_.distribution, self.solution_.n_iter
        if self.solution_.keyboard_interrupt:
            raise KeyboardInterrupt(self.solution_.message)
        told_so = self.solution_.status in ("solved", "interrupted")  # a callback that stops the fit knows that it does
        wrong = ([] if told_so else [self.solution_.message]) + ([_CUT.format(support.shape[0])] if stage.cut else [])
        if wrong:
            warnings.warn("; ".join(wrong), ConvergenceWarning, stacklevel=4)
        return self

    def _check_parameters(self) -> None:
        self._check_common()
        if isinstance(self.bandwidth, str):
            as_choice(self.bandwidth, "bandwidth", RULES, otherwise=", a positive number or one per feature")
        else:
            as_bandwidth(self.bandwidth)
        if self.embedding_bandwidth is not None:
            as_bandwidth(self.embedding_bandwidth, "embedding_bandwidth")
        if not (isinstance(self.regularization, str) and self.regularization == "auto"):
            as_nonnegative(self.regularization, 'regularization (or "auto")')
            if self.relative_regularization is not None:
                both = f"regularization={self.regularization!r} and relative_regularization={self.relative_regularization!r}"
                raise ValueError(f"{both} say the same in two units: the note's λ, and λ in units of w₀; give one of them")
        if self.relative_regularization is not None:
            as_nonnegative(self.relative_regularization, "relative_regularization")
        as_choice(self.penalty, "penalty", PENALTIES)
        if isinstance(self.support, str):
            as_choice(self.support, "support", SELECTIONS, otherwise=" or an array of support points")
        else:
            as_points(self.support, "support")
            if self.n_support is not None:
                raise ValueError("n_support is for support points chosen among the samples; an array as support is used as it is")
        if isinstance(self.landmarks, (int, np.integer)):
            as_count(self.landmarks, "landmarks")
        elif self.landmarks is not None:
            as_points(self.landmarks, "landmarks")
        if not isinstance(self.objective, Functional):
            as_choice(self.objective, "objective", OBJECTIVES, otherwise=" or a functional")
        check_options(self.solver, self.tol, self.max_iter, self.time_limit)
        as_callback(self.callback)

    def _kernels(self, points: np.ndarray, weights: np.ndarray, measure: Measure, rng: np.random.Generator) -> tuple[Kernel, Kernel]:
        """The model kernel and the embedding kernel."""
        d = points.shape[1]
        if isinstance(self.kernel, Kernel):
            kernel = self.kernel
        else:
            family = kernel_form(self.kernel)
            if isinstance(self.bandwidth, str):
                sigma = bandwidth_rule(self.bandwidth, points, weights, rng, kernel=family, measure=measure)
            else:
                sigma = as_bandwidth(self.bandwidth, n_features=d)
            kernel = family.with_sigma(sigma)
            if self._is_automatic:
                kernel = _wide_enough(kernel, points, weights, measure, self._most_support_points())
        kernel.check_features(d)
        if self.embedding_bandwidth is None:
            return kernel, kernel
        return kernel, kernel.with_sigma(as_bandwidth(self.embedding_bandwidth, "embedding_bandwidth", n_features=d))

    def _support(self, points: Array, weights: np.ndarray, kernel: Kernel, measure: Measure, rng: np.random.Generator) -> Array:
        if not isinstance(self.support, str):
            return like(as_points(self.support, "support", n_features=points.shape[1]), points)
        integrals = closed_form(kernel, measure, points.shape[1])
        return select_support(self.support, points, weights, self._most_support_points(), integrals, 1e-10, rng)

    def _most_support_points(self) -> int:
        if not isinstance(self.support, str):
            return len(self.support)
        return MOST_SUPPORT_POINTS if self.n_support is None else self.n_support

    def _landmarks(self, points: Array, rng: np.random.Generator) -> Array | None:
        if self.landmarks is None:
            return None
        if isinstance(self.landmarks, (int, np.integer)):
            chosen = np.sort(rng.choice(points.shape[0], min(int(self.landmarks), points.shape[0]), replace=False))
            xp = namespace(points)
            return xp.take(points, xp.asarray(chosen, device=points.device), axis=0)
        return as_points(self.landmarks, "landmarks", n_features=points.shape[1])

    @property
    def _is_automatic(self) -> bool:
        """Whether the bandwidth is that of the rule "auto"."""
        return isinstance(self.bandwidth, str) and self.bandwidth == "auto" and not isinstance(self.kernel, Kernel)

    @property
    def _by_likelihood(self) -> bool:
        return isinstance(self.objective, str) and self.objective == "likelihood"  # a functional has an == of its own

    def _functional(self, data: MeanEmbedding) -> Functional:
        """The objective plus the penalty."""
        distance = self.objective if isinstance(self.objective, Functional) else OBJECTIVES[self.objective](data)
        given, relative = self._given_strength()
        return distance + given * PENALTIES[self.penalty](relative=relative) if given > 0.0 else distance

    def _given_strength(self) -> tuple[float, bool]:
        """λ as it was given, and whether that is in units of w₀."""
        if self.relative_regularization is not None:
            return float(self.relative_regularization), True
        if isinstance(self.regularization, str):
            return AUTO_REGULARIZATIONS["likelihood" if self._by_likelihood else "mmd"][self._is_automatic], True
        return float(self.regularization), False

    def _strengths(self, space: SoSSpace) -> tuple[float, float]:
        """The note's λ, and λ in units of w₀; infinite where it overflows."""
        given, relative = self._given_strength()
        exponent = (1.0 if self.penalty == "trace" else 2.0) * space.log_unit * (1.0 if relative else -1.0)
        with np.errstate(over="ignore", under="ignore"):
            other = float(np.exp(np.log(given) + exponent)) if given > 0.0 else 0.0
        return (other, given) if relative else (given, other)


def _wide_enough(kernel: Kernel, points: np.ndarray, weights: np.ndarray, measure: Measure, m: int) -> Kernel:
    """The kernel, widened until ``m`` of the n points represent at least 70 % of the others, or by (n/m)^{1/(d+4)}.

    What suits n bumps leaves gaps between m of them; the latter is how much wider the bumps of a kernel density estimate of m samples are.
    """
    n, d = points.shape
    if n <= m:
        return kernel
    sigma, most = kernel.sigma, (n / m) ** (1.0 / (d + 4))
    if n > _PER_SUPPORT_POINT * m:
        chosen = np.sort(np.random.default_rng(0).choice(n, _PER_SUPPORT_POINT * m, replace=False))  # always the same: no matter of chance
        points, weights = points[chosen], weights[chosen] / weights[chosen].sum()
    for step in range(_WIDENINGS + 1):
        kernel = kernel.with_sigma(most ** (step / _WIDENINGS) * sigma)
        if unexplained(points, weights, m, closed_form(kernel, measure, d)) <= _UNEXPLAINED:
            break
    return kernel


def _quick_mmd_fit(space: SoSSpace, data: MeanEmbedding, deadline: Deadline) -> Array:
    """Where a likelihood fit begins: C of the density that fits ``data`` in MMD on at most 40 of the support points.

    It takes 0.02 s, whatever the size of the space.
    """
    integrals, support = space.integrals, to_numpy(space.support_points)
    chosen = pivoted_cholesky(support, min(_START_POINTS, support.shape[0]), integrals, space.tol_model)
    small = SoSSpace(space.kernel, support[chosen], space.measure, space.embedding_kernel)
    functional = SquaredMMD(data) + AUTO_REGULARIZATIONS["mmd"][0] * Trace(relative=True)
    found = minimize(functional, small, tol=_START_TOLERANCE, time_limit=deadline)
    if found.keyboard_interrupt:
        raise KeyboardInterrupt(found.message)
    p = found.distribution
    W = namespace(space.T).exp(integrals.log_gram(space.support_points, like(p.support_points, space.T)) - space.log_unit)
    G = space.T.T @ (W @ like(p.unit_factor * np.exp(0.5 * (space.log_unit - p.log_unit)), space.T))
    return G @ G.T


def _warn_if_unseen(data: MeanEmbedding, space: SoSSpace) -> None:
    """Say so when the landmarks are so far from the samples that the fit cannot depend on them."""
    z = space.coordinates(data)
    if inner(z, z) <= _UNSEEN:
        message = "the landmarks are too far from the samples to see them: the fit does not depend on the data; choose landmarks among them"
        warnings.warn(message, UserWarning, stacklevel=5)


def _warn_if_degenerate(kernel: Kernel, space: SoSSpace, points: Array) -> None:
    """Say so when the kernel matrix is close to I (among the support points) or to 11ᵀ (between them and the data)."""
    m = space.support_points.shape[0]
    xp, K = namespace(points), kernel(space.support_points)
    K = K * (1.0 - eye(m, K))
    if m > 1 and float(xp.max(K)) <= _NEARLY_ZERO:
        problem = "far smaller than the distances between the support points: the kernel matrix is close to the identity"
        remedy = "a larger bandwidth, or more support points"
    elif points.shape[0] > 1 and float(xp.min(kernel(points, space.support_points[:1, :]))) >= _NEARLY_ONE:
        problem, remedy = "far larger than the spread of the data: all kernel values are close to 1", "a smaller bandwidth"
    else:
        return
    sizes = dict.fromkeys(f"{size:.4g}" for size in (kernel.sigma.min(), kernel.sigma.max()))
    warnings.warn(
        f"the bandwidth {' to '.join(sizes)} is {problem}; rank {space.rank} of {m} was kept; try {remedy}", BandwidthWarning, stacklevel=5
    )
