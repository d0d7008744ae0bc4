"""The problems behind the robust estimators: models under distributions near the data, and the
largest radius that does no harm.
"""

from __future__ import annotations

from abc import abstractmethod
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple, Self, cast

import numpy as np
from scipy.spatial import cKDTree
from scipy.spatial.distance import pdist

from ksos.data import distinct_samples
from ksos.ground import (
    Run,
    as_bandwidth,
    as_count,
    one_blas_thread,
)
from ksos.kernels import Gaussian
from ksos.measures import Box, Lebesgue, Measure
from ksos.observables import NumericFunction, Observable, coordinate
from ksos.robust import (
    Ball,
    Goal,
    LogisticScores,
    Residuals,
    SquareRisk,
    adversary_in,
    affine_moments,
    kernel_moments,
    solve,
)
from ksos.robust.ball import Adversary, resampled_radius
from ksos.robust.exact_ball import nearest_exactly
from ksos.robust.learning import ParametricFamily
from ksos.robust.losses import HingeLoss, ParametricLoss, least_expected
from ksos.robust.parametric import least_squares, second_moments
from ksos.space import LabeledEmbedding, Nodes, SoSSpace, nodes_of, pivots

__all__ = ["Densities", "EstimatorFamily", "Moments", "Reweighted", "radius_of"]

_EXACT_FEATURES = 3  # Quadrature on tensor grids stops at three features, as in ksos.space.
# Grids of 40, 9 × 9 and 4 × 4 × 4 support points.
_GRID_SUPPORT = {1: 40, 2: 81, 3: 64}
_SCATTERED_SUPPORT = 60  # beyond three features, with no grid: keeps an O(rank³) step as cheap
_WEIGHT_SUPPORT = 20  # a third of that, as relative densities are smooth, and fitted in five folds
_LANDMARKS = 200  # bounds the cost, not the accuracy: ksos.robust.exact_ball adds what they miss
_WEIGHT_LANDMARKS = 50  # The same for weights of the samples, which have the smaller rank.
_SPAN_TOL = 1e-8  # squared residual of φ(x) on the landmarks: √1e-8 = 1e-4 is the default rtol
_MEDIAN_ROWS = 2000  # Two million distances, 16 MB, for the median.
_APART = 100.0  # bandwidths between label codes: k is k(x, x')·1[label = label'], for e^−10000 is 0

_FOLDS = 5  # Five folds as in scikit-learn ...
_FEWEST = 10  # ... of at least two distinct samples each.
_FRACTIONS = (1.0, 0.5, 0.25, 0.125)  # of the bootstrap radius: below 1/8 predictions hardly change
_HARMLESS = 0.005  # of the held-out loss, all folds: from simulated tables; benchmarks/no_harm.py
_AT_MOST = 0.03  # the same in a fold, or in all with a standard error: few samples must not decide
_NUMBER_SLACK = 1e-4  # of the loss at θ = 0: so little more is rounding if the model is exact
_LABEL_SLACK = 1e-2  # the same for labels, as losses of separable classes differ by tiny amounts
_FEASIBLE = 1.2  # A ball reaches beyond the nearest density by a fifth, or it holds little else.
# Folds are compared to within percents, so their fits have a relative gap of 1%.
_ROUGH = Goal(rtol=1e-2)
_RESAMPLES = 200  # Enough resamples for the first digit of a 95% quantile, which is halved anyway.


class Moments(NamedTuple):
    """Summary of a distribution of (x, y) in the units of its columns, and for a classifier the
    probabilities of the labels.
    """

    mean: np.ndarray
    std: np.ndarray
    shares: np.ndarray | None = None


# The bandwidth given, or the median distance of the standardized rows, in X's units.
def _bandwidth(given: Any, name: str, X: np.ndarray, scale: np.ndarray) -> np.ndarray:
    if given is not None:
        return as_bandwidth(given, name, n_features=X.shape[1])
    rows = np.unique(X, axis=0)
    if rows.shape[0] > _MEDIAN_ROWS:
        rows = rows[np.linspace(0, rows.shape[0] - 1, _MEDIAN_ROWS).astype(int)]
    distances = pdist((rows - rows[0]) / scale) if rows.shape[0] > 1 else np.ones(1)
    return np.asarray(max(float(np.median(distances)), 1e-3) * scale)


class Model:
    """A model that is linear in θ, with its loss: scores ⟨u(x), θ_c⟩ of a number y, or of labels.

    u(x) = (1, standardized features), or (1, k(x, c_1), …) with centers c_j among the samples. The
    square loss is Σ_c (score_c − target_c)². Targets are y − offset, ∓1 for two labels, and unit
    vectors for more. The logistic loss fixes the score of the first label at 0.
    """

    def __init__(self, params: Any, loss: Any, Z: np.ndarray, weights: np.ndarray) -> None:
        unit = np.maximum(np.max(np.abs(Z), axis=0), 1e-300)  # so that nothing overflows
        mean = weights @ (Z / unit)
        deviation = np.sqrt(weights @ (Z / unit - mean) ** 2)
        # the scale of a constant feature is 1
        center, units = mean * unit, np.where(deviation <= 1e-12, 1.0, deviation * unit)
        self.center, self.scale, self.offset = center[:-1], units[:-1], float(center[-1])
        self.labels = vars(params).get("classes_")
        self.n_labels = L = 0 if self.labels is None else len(self.labels)
        if L > 2 and isinstance(loss, HingeLoss):
            raise ValueError(
                f"loss='hinge' is for two labels; got {L}; use loss='logistic' or 'square'"
            )
        self.table = np.eye(L) if L > 2 else np.array([[-1.0], [1.0]])
        self.n_scores, self.n_numbers = self.table.shape[1], Z.shape[1] - (L > 0)
        self.outputs = self.n_scores - (L > 2 and not loss.closed_form)
        unit_of_y = 1.0 if L else float(units[-1])
        self.units, self.loss = np.r_[self.scale, unit_of_y], loss.scaled(unit_of_y)
        self.kernel: Gaussian | None = None
        if params.model == "kernel":
            rows, most = np.unique(Z[:, :-1], axis=0), as_count(params.n_centers, "n_centers")
            given = params.model_bandwidth
            self.kernel = Gaussian(_bandwidth(given, "model_bandwidth", rows, self.scale))
            self.centers = rows[pivots(self.kernel, rows, 1e-6, most)]
        self.size = self(Z[:1, :-1]).shape[1]
        ridge = np.r_[0.0, np.full(self.size - 1, params.alpha * unit_of_y ** (loss.degree - 2))]
        self.alpha = np.tile(ridge, self.outputs)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        """u at the rows of X, shape (n, size)."""
        functions = self.kernel(X, self.centers) if self.kernel else (X - self.center) / self.scale
        return np.concatenate([np.ones((X.shape[0], 1)), functions], axis=1)

    def rows(self, theta: np.ndarray) -> np.ndarray:
        """θ_c of all scores, those that are fixed at 0 included."""
        fixed = np.zeros((self.n_scores - self.outputs, self.size))
        return np.concatenate([fixed, theta.reshape(self.outputs, -1)])

    def targets(self, y: np.ndarray) -> np.ndarray:
        """The scores whose square loss is 0, shape (n, scores)."""
        return self.table[y.astype(int)] if self.n_labels else (y - self.offset)[:, None]

    def at(self, Z: np.ndarray, loss: Any) -> ParametricLoss:
        """A smooth loss as a function of θ, at rows (x, y)."""
        U, y = self(Z[:, :-1]), Z[:, -1]
        if self.n_labels:
            return self.of_scores(U, loss, y.astype(int))
        return Residuals(loss, U, y - self.offset)

    def of_scores(
        self, U: np.ndarray, loss: Any, codes: np.ndarray | None = None
    ) -> ParametricLoss:
        """The same for labels: of all of them in turn, or with ``codes`` of one for each row."""
        if not isinstance(loss, HingeLoss):
            return LogisticScores(U, self.n_labels, codes)
        signed = np.concatenate([-U, U]) if codes is None else (2.0 * codes - 1.0)[:, None] * U
        return Residuals(loss.phi, signed, np.ones(signed.shape[0]))

    def losses(self, theta: np.ndarray, Z: np.ndarray, code: int | None = None) -> np.ndarray:
        """The loss of θ at rows (x, y), or at rows x of the label with this code."""
        Z = Z if code is None else np.column_stack([Z, np.full(Z.shape[0], float(code))])
        if not self.loss.closed_form:
            return self.at(Z, self.loss).exact(theta)
        errors = self.targets(Z[:, -1]) - self(Z[:, :-1]) @ self.rows(theta).T
        return np.asarray(np.sum(errors**2, axis=1))


class EstimatorFamily(ParametricFamily):
    """The losses of a model under the distributions that may replace the data.

    Square losses are in closed form: those of ⟨t, u⟩ with t = E θ + s (ksos.robust.parametric),
    where u ends with the targets.
    """

    agreement = 1e-4  # between the exact and the projected MMD: the digits of the default rtol
    ball: Ball  # around the columns that shift, of radius 0

    def __init__(
        self, params: Any, loss: Any, samples: np.ndarray, masses: np.ndarray, shift: str
    ) -> None:
        """``samples`` are distinct rows (x, y). Subclasses choose the adversary and the risk."""
        self.params, self.given, self.samples, self.shift = params, loss, samples, shift
        self.masses, X, y = masses, samples[:, :-1], samples[:, -1]
        self.model = model = Model(params, loss, samples, masses)
        self.alpha, k, P = model.alpha, model.outputs, model.size
        self.E = np.pad(np.eye(k * P).reshape(k, P, k * P), ((0, 0), (0, k), (0, 0)))
        self.s = np.concatenate([np.zeros((k, P)), -np.eye(k)], axis=1)[None]
        self.functions = np.column_stack([model(X), model.targets(y)])
        # numbers come first, and codes of labels are far apart
        self.joint = np.column_stack([X, (_APART if model.n_labels else 1.0) * y])
        self.numbers = samples[:, : model.n_numbers]

    def moments(self, weights: np.ndarray) -> Moments:
        """The moments of the samples with these weights."""
        mean, L, y = weights @ self.numbers, self.model.n_labels, self.samples[:, -1]
        std = np.sqrt(np.maximum(weights @ (self.numbers - mean) ** 2, 0.0))
        return Moments(mean, std, np.bincount(y.astype(int), weights, L) if L else None)

    def on(self, rows: np.ndarray) -> Self:
        """The family of some of the samples."""
        part = distinct_samples(self.samples[rows], self.masses[rows])
        return type(self)(self.params, self.given, *part, self.shift)

    @abstractmethod
    def _face(self, adversary: Adversary) -> None:
        """Set the adversary, and the risk under its densities."""

    def under(self, adversary: Adversary, theta: np.ndarray) -> Self:
        other = copy(self)
        vars(other).pop("problem", None)  # that of the other adversary
        other._face(adversary)
        return other

    def losses_of(self, theta: np.ndarray, samples: np.ndarray) -> np.ndarray:
        return self.model.losses(theta, samples)

    def data_losses(self) -> list[tuple[ParametricLoss, float]]:
        return [
            (self.model.at(self.samples, loss), loss.excess) for loss in self.model.loss.ladder()
        ]

    def empirical(self) -> tuple[np.ndarray, float]:
        if self.model.loss.closed_form:
            Q = (self.functions.T @ (self.masses[:, None] * self.functions))[None]
            found = least_squares(Q, self.E, self.s, self.alpha)
            return found.theta, found.value
        theta = np.zeros(self.alpha.shape[0])
        for at, _ in self.data_losses():  # each starts where a softer one has ended
            theta = least_expected(at, self.masses, self.alpha, theta).theta
        losses = self.model.losses(theta, self.samples)
        return theta, float(self.masses @ losses + self.alpha @ theta**2)

    def integration_error(self, theta: np.ndarray) -> float:
        return (
            0.0
            if self.model.loss.closed_form or self.adversary.ball.domain.atoms is not None
            else super().integration_error(theta)
        )

    def empirical_bound(self, theta: np.ndarray, value: float, tol: float) -> float:
        return (
            value
            if self.model.loss.closed_form
            else max(super().empirical_bound(theta, value, tol), 0.0)
        )


# The densities with support points and landmarks among the samples.
def _among_samples(ball: Ball, bandwidth: np.ndarray, most: int, landmarks: int) -> Adversary:
    model, points = Gaussian(bandwidth), ball.points
    support = points[pivots(model, points, _SPAN_TOL, most)]
    seen = points[pivots(ball.kernel, points, _SPAN_TOL, landmarks)]
    space = SoSSpace(model, support, ball.domain, ball.kernel, seen)
    return replace(adversary_in(ball, space=space), grows=True)


class Densities(EstimatorFamily):
    """Densities of (x, y) on a domain, also where there are no data.

    Up to three features the densities cover a box. Beyond, they lie around the data. With labels,
    the kernel is k(x, x')·1[label = label'], and each label has a sum of squares.
    """

    def __init__(
        self, params: Any, loss: Any, samples: np.ndarray, masses: np.ndarray, shift: str
    ) -> None:
        super().__init__(params, loss, samples, masses, shift)
        model, points, d = self.model, self.numbers, self.model.n_numbers
        grid, units, n_labels = d <= _EXACT_FEATURES, model.units[:d], model.n_labels
        if not loss.closed_form and not grid:
            raise ValueError(
                f"loss={loss!r} is integrated by quadrature, for at most "
                f"{_EXACT_FEATURES - (not n_labels)} features; got {model.scale.size}; "
                "use loss='square', or shift='both', 'x' or 'y'"
            )
        box = Box(points.min(axis=0) - units, points.max(axis=0) + units) if grid else Lebesgue()
        domain = box if params.measure is None else params.measure
        if not (isinstance(domain, Measure) and domain.by_volume):
            raise TypeError(
                f"measure must be a ksos.measures.Box, Lebesgue or None; got {domain!r}"
            )
        sigma = _bandwidth(params.embedding_bandwidth, "embedding_bandwidth", points, units)
        eta = None if params.bandwidth is None else as_bandwidth(params.bandwidth, n_features=d)
        grid_size = _GRID_SUPPORT.get(d, _SCATTERED_SUPPORT)
        given = grid_size if params.n_support is None else params.n_support
        most = as_count(given, "n_support", minimum=2)
        ball = Ball(points, 0.0, weights=masses, kernel=Gaussian(sigma), domain=domain)
        adversary = (
            adversary_in(ball, eta, n_support=most)
            if grid
            else _among_samples(ball, units if eta is None else eta, most, _LANDMARKS)
        )
        self.ball, self._data = ball, None
        if n_labels:
            codes, y = np.arange(n_labels), samples[:, -1]
            self._data = LabeledEmbedding.of(points, y, codes, masses, kernel=ball.kernel)
            joint = Gaussian(np.r_[ball.kernel.sigma_vector(d), 1.0])
            self.ball = Ball(self.joint, 0.0, weights=masses, kernel=joint)
        ours = grid and eta is None and params.n_support is None
        self._face(replace(adversary, refines=ours))

    def _face(self, adversary: Adversary) -> None:
        model = self.model
        ParametricFamily.__init__(self, adversary, model.labels, self._data)
        if model.loss.closed_form:
            self.risk = self._square_risk()
            return
        nodes = self.nodes()
        at = (
            model.of_scores(model(nodes.points), model.loss)
            if model.n_labels
            else model.at(nodes.points, model.loss)
        )
        self.risk = model.loss.risk(nodes, at, self.alpha)

    def _square_risk(self) -> SquareRisk:
        model, space, d, P = self.model, self.adversary.space, self.model.n_numbers, self.model.size
        center, scale = np.r_[model.center, model.offset][:d], np.r_[model.scale, 1.0][:d]
        E, s, offset = self.E, self.s, cast("float | None", model.offset)
        if model.n_labels:  # in the block of a label, targets are multiples of u_0 = 1
            E, s, offset = E[:, :P], -model.table[:, :, None] * np.eye(1, P), None
        V = (
            kernel_moments(space, model.centers, model.kernel, offset)
            if model.kernel
            else affine_moments(space, center, scale)
        )
        return SquareRisk(V, E, s, self.alpha)

    def loss_at(self, theta: np.ndarray) -> Observable:
        """Of x and y, or of x and the code of the label. It can be pickled."""
        losses = partial(self.model.losses, theta)
        return NumericFunction(losses) if self.model.n_labels else self.losses_at(theta)[0]

    def losses_at(self, theta: np.ndarray) -> list[Observable]:
        """One function of x per label, or one of (x, y). Squares of linear scores: polynomials."""
        model = self.model
        if model.kernel or not model.loss.closed_form:
            codes, losses = range(model.n_labels) or [None], partial(model.losses, theta)
            return [NumericFunction(partial(losses, code=code)) for code in codes]
        centers = enumerate([*model.center.tolist(), model.offset])
        *x, y = (coordinate(k, center=center) for k, center in centers)
        scores = [
            float(row[0]) + sum(float(t) * f for t, f in zip(row[1:] / model.scale, x, strict=True))
            for row in model.rows(theta)
        ]
        targets = model.table.tolist() if model.n_labels else [[y]]
        return [sum((f - g) ** 2 for f, g in zip(scores, row, strict=True)) for row in targets]

    def empirical_value(self, theta: np.ndarray) -> float | None:
        return (
            float(self.masses @ self.model.losses(theta, self.samples))
            if self.model.n_labels
            else super().empirical_value(theta)
        )

    def moments_of(self, distribution: Any) -> Moments:
        """The moments of (x, y) under a density."""
        shares = None
        if self.model.n_labels:
            shares, distribution = np.asarray(distribution.probabilities), distribution.marginal()
        std = np.sqrt(np.maximum(np.diag(distribution.cov()), 0.0))
        return Moments(np.asarray(distribution.mean()), std, shares)


class Reweighted(EstimatorFamily):
    """The distributions Σ_i w_i p(c_i) δ_{(x_i, y_i)}, where c_i are the columns that may shift.

    p is a sum of squares relative to the data, so expectations are sums over the samples. p = 1
    gives the data. The ball is that of the distribution of c. Given c, the distribution of (x, y)
    is that of the data.
    """

    def __init__(
        self, params: Any, loss: Any, samples: np.ndarray, masses: np.ndarray, shift: str
    ) -> None:
        super().__init__(params, loss, samples, masses, shift)
        columns = {"x": slice(None, -1), "y": slice(-1, None), "both": slice(None)}[shift]
        table, units = self.joint[:, columns], self.model.units[columns]
        # labels take no part in the bandwidths: theirs is 1, and their codes are far apart
        numbers = np.arange(self.joint.shape[1])[columns] < self.model.n_numbers
        sigma, d, given = np.ones(units.size), int(numbers.sum()), params.embedding_bandwidth
        sigma[numbers] = _bandwidth(given, "embedding_bandwidth", table[:, numbers], units[numbers])
        eta = sigma.copy()
        if params.bandwidth is not None:
            eta[numbers] = as_bandwidth(params.bandwidth, n_features=d)
        self.ball = Ball(table, 0.0, weights=masses, kernel=Gaussian(sigma), domain="samples")
        # kernels do not reach from label to label, so each label needs points of its own: two
        least = 2 * self.model.n_labels
        given = max(_WEIGHT_SUPPORT, least) if params.n_support is None else params.n_support
        sizes = as_count(given, "n_support", minimum=2), max(_WEIGHT_LANDMARKS, least)
        # the point of the measure that every sample belongs to
        self.own = np.unique(table, axis=0, return_inverse=True)[1].ravel()
        ours = params.bandwidth is None and params.n_support is None
        self._face(replace(_among_samples(self.ball, eta, *sizes), refines=ours))

    def _face(self, adversary: Adversary) -> None:
        ParametricFamily.__init__(self, adversary)
        loss, at = self.model.loss, self.model.at
        self.risk = (
            SquareRisk(self._second_moments(), self.E, self.s, self.alpha)
            if loss.closed_form
            else loss.risk(self.nodes(), at(self.samples, loss), self.alpha)
        )

    def _second_moments(self) -> np.ndarray:
        U, nodes = self.functions, self.nodes()
        P, r = U.shape[1], nodes.psi.shape[1]
        return second_moments(P, r, lambda a, b: nodes.matrix(U[:, a] * U[:, b]))

    def nodes(self, *others: np.ndarray) -> Nodes:
        shares = self.masses / self.ball.weights[self.own]
        psi = nodes_of(self.space).psi[self.own] * np.sqrt(shares)[:, None]
        return Nodes(self.samples, psi)

    def loss_at(self, theta: np.ndarray) -> Observable:
        """c ↦ E[ℓ(θ, (x, y)) | c] under the data."""
        losses, ball = self.model.losses(theta, self.samples), self.ball
        mean = np.bincount(self.own, weights=self.masses * losses) / ball.weights
        return NumericFunction(partial(_nearest_value, ball.points, mean))

    def moments_of(self, distribution: Any) -> Moments:
        """The moments of the samples, reweighted."""
        weights = self.masses * distribution.pdf(self.ball.points)[self.own]
        return self.moments(weights / weights.sum())


# The value of the nearest point, which for points of the measure is their own.
def _nearest_value(points: np.ndarray, values: np.ndarray, C: np.ndarray) -> np.ndarray:
    unit = np.maximum(np.ptp(points, axis=0), 1e-300)
    return np.asarray(values[cKDTree(points / unit).query(C / unit)[1]])


class _Fold:
    """The fit to four fifths of the samples, and its losses at the others."""

    def __init__(self, family: EstimatorFamily, held_out: np.ndarray) -> None:
        self.family = family.on(np.delete(np.arange(family.masses.shape[0]), held_out))
        self.rows, self.weights = family.samples[held_out], family.masses[held_out]
        self.plain = self.losses(self.family.empirical()[0])
        zero = np.zeros_like(self.family.alpha)  # the fold has its own centers
        self.slack = abs(float(self.weights @ self.losses(zero))) * (
            _LABEL_SLACK if family.model.n_labels else _NUMBER_SLACK
        )

    def losses(self, theta: np.ndarray) -> np.ndarray:
        """The held-out losses of a parameter."""
        return self.family.model.losses(theta, self.rows)

    def excess(self, radius: float) -> np.ndarray | None:
        """The held-out losses above those of the plain fit. None if they are harmful or unknown."""
        saddle = solve(self.family.problem, radius, _ROUGH)
        if saddle.empty or Run.current().over:
            return None
        excess = self.losses(saddle.theta) - self.plain
        most = _AT_MOST * float(self.weights @ self.plain) + self.slack
        return excess if self.weights @ excess <= most else None


@one_blas_thread(0)
def radius_of(family: EstimatorFamily, radius: Any, random_state: Any) -> float:
    """The radius as a number: as given, by the bootstrap, or chosen by cross-validation.

    If no radius is harmless, or the time is over, it is 0. Resamples have as many samples as there
    are distinct ones, so that weights count like repetitions.
    """
    if not isinstance(radius, str):
        return float(radius)
    ball, n = family.ball, family.samples.shape[0]
    if radius == "bootstrap":
        return resampled_radius(ball, n, rng=random_state)
    if n < _FEWEST or ball.points.shape[0] < 2:
        return 0.0
    widest = resampled_radius(ball, n, n_resamples=_RESAMPLES, rng=random_state)
    distance, family.problem = nearest_exactly(family.problem, _FRACTIONS[-1] * widest)
    least = _FEASIBLE * distance
    widest = max(widest, least) if isinstance(family, Densities) else widest
    order = np.random.default_rng(random_state).permutation(n)
    folds = [_Fold(family, order[k::_FOLDS]) for k in range(_FOLDS)]
    weights = np.concatenate([fold.weights for fold in folds])
    plain = float(weights @ np.concatenate([fold.plain for fold in folds]))
    slack = sum(fold.slack for fold in folds)
    for candidate in (widest * fraction for fraction in _FRACTIONS if widest * fraction >= least):
        Run.current().tell(f"held-out losses with radius {candidate:.3g}")
        parts = (fold.excess(candidate) for fold in folds)
        known: list[Any] = list(takewhile(lambda part: part is not None, parts))
        if len(known) == _FOLDS:
            excess = np.concatenate(known)
            total = float(weights @ excess)
            error = float(np.linalg.norm(weights * (excess - total / weights.sum())))
            if total <= _HARMLESS * plain + slack and total + error <= _AT_MOST * plain + slack:
                return candidate
    return 0.0
