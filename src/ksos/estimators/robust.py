"""RobustRegressor and RobustClassifier: models that are robust to distribution shift."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos.data import distinct_samples
from ksos.estimators.robust_family import Densities, Moments, Reweighted, radius_of
from ksos.ground import (
    Run,
    as_choice,
    as_nonnegative,
    as_vector,
    as_weights,
    available_if,
    require_complete,
    require_numbers,
    require_order,
    require_unmasked,
    warn_caller,
)
from ksos.robust.ball import check_radius
from ksos.robust.exact_ball import nearest_exactly
from ksos.robust.learning import RobustSolution, solved_robustly, with_costs
from ksos.robust.losses import ClassificationLoss, LogisticLoss, RegressionLoss, as_loss_object
from ksos.robust.worst_case import as_goal

__all__ = ["PreparedFor", "RobustClassifier", "RobustRegressor"]

_ANYWHERE = "anywhere"
_SHIFTS = {
    "x": "weights that depend on x, with p(y | x) unchanged",
    "y": "weights that depend on y, with p(x | y) unchanged",
    "both": "weights that depend on x and y",
    _ANYWHERE: "any density of the domain",
}


@dataclass(frozen=True)
class PreparedFor:
    """Compare the worst distribution with the data, column by column. ``str`` prints it."""

    shift: str  # "x", "y", "both" or "anywhere"
    radius: float  # the MMD up to which distributions of this kind are covered
    columns: tuple[str, ...]
    labels: tuple[Any, ...]
    data: Moments
    worst: Moments
    loss: float | None  # mean loss of the data
    worst_loss: float | None

    @property
    def nothing(self) -> bool:
        """Whether the fit is the plain one."""
        return self.worst_loss is None

    def __str__(self) -> str:
        if self.worst_loss is None:
            why = "for no larger radius was found harmless or was asked for"
            return f"prepared for no shift: the plain model, radius 0, {why}"
        loss = "unknown" if self.loss is None else f"{self.loss:.4g}"
        lines = [
            f"prepared for {_SHIFTS[self.shift]}, within MMD {self.radius:.3g} of the data",
            (
                f"  mean loss {loss} in the data, at most about {self.worst_loss:.4g}; "
                "in the worst case:"
            ),
        ]
        columns = (self.columns, self.data.mean, self.worst.mean, self.data.std, self.worst.std)
        lines += [
            f"  {name}: mean {mean:.4g} → {moved:.4g}, standard deviation {std:.4g} → {now:.4g}"
            for name, mean, moved, std, now in zip(*columns, strict=True)
        ]
        if self.data.shares is not None and self.worst.shares is not None:
            shares = zip(self.labels, self.data.shares, self.worst.shares, strict=True)
            lines += [f"  share of {label}: {old:.1%} → {new:.1%}" for label, old, new in shares]
        return "\n".join(lines)


class RobustEstimator(BaseEstimator):
    """Fit a model against the worst distribution in an MMD ball around the data."""

    _kind: type  # of its losses
    _loss_at_samples: str  # the default if samples are reweighted
    _checked: Callable[..., tuple[np.ndarray, np.ndarray]]  # X, and y as numbers or codes of labels

    def __init__(
        self,
        radius: Any = "auto",
        model: str = "linear",
        loss: Any = None,
        alpha: float = 1e-3,
        n_centers: int = 20,
        model_bandwidth: Any = None,
        bandwidth: Any = None,
        embedding_bandwidth: Any = None,
        measure: Any = None,
        n_support: int | None = None,
        tol: float | None = None,
        rtol: float = 1e-4,
        time_limit: float | None = None,
        random_state: int | None = 0,
        shift: str | None = None,
        verbose: int = 0,
    ) -> None:
        self.radius, self.model, self.loss, self.alpha = radius, model, loss, alpha
        self.n_centers, self.model_bandwidth = n_centers, model_bandwidth
        self.bandwidth, self.embedding_bandwidth = bandwidth, embedding_bandwidth
        self.measure, self.n_support, self.tol, self.rtol = measure, n_support, tol, rtol
        self.time_limit, self.random_state = time_limit, random_state
        self.shift, self.verbose = shift, verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Fit the model and find the worst distribution.

        Ctrl-C stores the best solution so far, if there is one, and is raised again.
        """
        with self._run():
            return self._fit(X, y, [self.radius], sample_weight)[0]

    def path(
        self,
        X: Any,
        y: Any,
        radii: Sequence[Any],
        sample_weight: Any = None,
        *,
        cv: int | None = None,
    ) -> list[Self]:
        """Fit one copy per radius, in the order given.

        If the ball of a radius holds no density, an error names the least radius before anything is
        fitted. ``time_limit`` is for all radii together. With ``cv`` folds, each ``solution_`` has
        its mean ``cost`` on held-out samples, see :func:`ksos.robust_path`.
        """
        if isinstance(radii, str) or not np.iterable(radii) or not np.size(radii):
            raise TypeError(f"radii must be a sequence of at least one radius; got {radii!r}")
        with self._run():
            return self._fit(X, y, radii, sample_weight, path=True, cv=cv)

    def _run(self) -> Run:
        return Run(self.time_limit, type(self).__name__, "setting up", verbose=self.verbose)

    # As given. Default: sample weights if a radius is "auto", else densities of the domain.
    def _shift_for(self, radii: Sequence[Any]) -> str:
        if self.shift is None:
            chosen = any(isinstance(radius, str) and radius == "auto" for radius in radii)
            return "both" if chosen and self.measure is None else _ANYWHERE
        shift = as_choice(self.shift, "shift", tuple(_SHIFTS))
        if shift != _ANYWHERE and self.measure is not None:
            raise ValueError(
                f"measure is a domain, for shift='{_ANYWHERE}'; shift={shift!r} reweights the "
                "samples: omit one of them"
            )
        return shift

    def _loss_for(self, shift: str) -> Any:
        default = "square" if shift == _ANYWHERE else self._loss_at_samples
        return as_loss_object(default if self.loss is None else self.loss, self._kind)

    @np.errstate(under="ignore")
    def _fit(
        self,
        X: Any,
        y: Any,
        radii: Sequence[Any],
        sample_weight: Any,
        path: bool = False,
        cv: int | None = None,
    ) -> list[Self]:
        run, name = Run.current(), type(self).__name__
        for radius in (self.radius, *radii):
            check_radius(radius, ("auto", "bootstrap"))
        as_choice(self.model, "model", ("linear", "kernel"))
        as_nonnegative(self.alpha, "alpha")
        goal, shift = as_goal(self.tol, self.rtol), self._shift_for(radii)
        loss, kind = self._loss_for(shift), Densities if shift == _ANYWHERE else Reweighted
        with run.setup(0.25):  # as in robust_minimize
            X, y = self._checked(X, y)
            weights = as_weights(sample_weight, X.shape[0])
            samples = distinct_samples(np.column_stack([X, y]), weights)
            family = kind(self, loss, *samples, shift)
        numbers = [radius_of(family, radius, self.random_state) for radius in radii]
        least = min((number for number in numbers if number > 0.0), default=0.0)
        if len(numbers) > 1 and least > 0.0:  # so that no fit is lost to a radius further down
            distance, family.problem = nearest_exactly(family.problem, least)
            if least <= distance:
                _report(solved_robustly(family, least, goal), name, numbers)
        out = list[Self]()
        for radius, number in zip(radii, numbers, strict=True):
            run.tell(f"radius {number:.3g}, {len(out) + 1} of {len(radii)}", len(out), len(radii))
            # folds speak for the smooth weights that they were solved with, and for no others
            refine = radius != "auto"
            solution = solved_robustly(family, number, goal, refine)
            _report(solution, name, [number])
            out.append(copy(self).set_params(radius=radius, shift=shift) if path else self)
            out[-1]._take(family, solution)
            if run.interrupted:
                raise KeyboardInterrupt(f"{name}: {solution.message}")
        costs = with_costs([est.solution_ for est in out], family, cv, self.random_state)
        for est, solution in zip(out, costs, strict=True):
            est.solution_ = solution
        return out

    # Store a solution under the public names.
    def _take(self, family: Densities | Reweighted, solution: RobustSolution) -> None:
        worst, model, theta = solution.worst_case, family.model, solution.theta
        self.solution_, self.worst_case_, self.radius_ = solution, worst, solution.radius
        self.ball_ = family.ball.with_radius(solution.radius)
        self._model, self._rows, labeled = model, model.rows(theta), model.n_labels > 0
        self.theta_ = theta.reshape(-1, model.size) if labeled else theta
        if model.kernel:
            self.centers_ = model.centers
        else:
            coef = self._rows[:, 1:] / model.scale
            at_zero = self._rows[:, 0] - coef @ model.center
            self.coef_ = coef if labeled else coef[0]
            self.intercept_: Any = at_zero if labeled else float(at_zero[0] + model.offset)
        names = vars(self).get("feature_names_in_", [f"x{k}" for k in range(model.scale.size)])
        columns = *map(str, names), *([] if labeled else ["y"])
        labels, data = model.labels.tolist() if labeled else (), family.moments(family.masses)
        known = columns, tuple(labels), data
        self.prepared_for_ = PreparedFor(family.shift, 0.0, *known, data, None, None)
        if worst is not None and worst.value is not None:
            moved, losses = (
                family.moments_of(worst.distribution),
                (worst.empirical_value, worst.value),
            )
            self.prepared_for_ = PreparedFor(family.shift, solution.radius, *known, moved, *losses)
        if self.verbose:
            print(f"{type(self).__name__} is {self.prepared_for_}", flush=True)

    def _scores(self, X: Any) -> np.ndarray:
        check_is_fitted(self, "theta_")
        numbers = require_numbers(require_order(self, X))
        X = validate_data(self, numbers, dtype=np.float64, reset=False)
        return np.asarray(self._model(X) @ self._rows.T)


# Raise if no density lies in the ball. Warn if the gap is larger than requested.
def _report(solution: RobustSolution, name: str, radii: list[float]) -> None:
    if solution.status == "infeasible":
        least = max(solution.least_radius or 0.0, solution.radius)
        empty = ", ".join(f"{radius:.6g}" for radius in radii if 0.0 < radius <= least)
        raise ValueError(
            f"{name}: no density of the space lies within radius {empty} of the data, so that "
            f"nothing was fitted; {solution.note}"
        )
    if solution.status == "undecided":
        raise ValueError(
            f"{name}: radius={solution.radius:.6g} is about the least one; {solution.message}"
        )
    if solution.status != "solved":
        warn_caller(ConvergenceWarning(f"{name}: {solution.message}"))


class RobustRegressor(RegressorMixin, RobustEstimator):
    r"""Regression that is robust to distribution shift.

    Minimizes the worst expected loss over distributions close to the data in MMD: min over f of max
    over p of E_p[loss(y − f(x))] + α‖θ‖².

    Parameters
    ----------
    radius : float, "auto" or "bootstrap", default="auto"
        Size of the MMD ball. 0 gives ridge regression. "bootstrap" covers sampling error. "auto" is
        the largest radius that does not hurt the cross-validated loss, possibly 0.
    model : {"linear", "kernel"}, default="linear"
        f is linear, or a sum of Gaussian kernels.
    loss : {"square", "huber", "absolute", "quantile"} or RegressionLoss, default="square"
        A name, or an object such as ``ksos.robust.QuantileLoss(level=0.9)``.
    alpha : float, default=1e-3
        Ridge penalty.
    n_centers : int, default=20
        Most centers of the kernel model.
    model_bandwidth : float or array of d floats, optional
        Bandwidth of the kernel model.
    bandwidth : float or array of d + 1 floats, optional
        Bandwidth of the densities.
    embedding_bandwidth : float or array of d + 1 floats, optional
        Bandwidth of the kernel of the MMD.
    measure : Box or Lebesgue, optional
        Domain of (x, y).
    n_support : int, optional
        Most support points of the densities.
    tol : float, optional
        Absolute gap.
    rtol : float, default=1e-4
        Gap relative to the risk.
    time_limit : float, optional
        Seconds for the fit.
    random_state : int, optional, default=0
        Seed of bootstrap and folds.
    shift : {"x", "y", "both", "anywhere"}, optional
        Which distributions are considered: reweighted samples, of which p(y | x) or p(x | y) is
        kept, or densities on ``measure``. Default: "both" for ``radius="auto"`` without
        ``measure``, else "anywhere".
    verbose : int, default=0
        1 prints ``prepared_for_``.

    Attributes
    ----------
    coef_, intercept_ : ndarray (d,), float
        The linear model.
    centers_, theta_ : ndarray
        The kernel model.
    worst_case_ : WorstCase or None
        The worst density for the fitted f. None at radius 0.
    prepared_for_ : PreparedFor
        Means and standard deviations in the data and in the worst case.
    solution_, ball_, radius_
        Certificate and ball.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (30, 1))
    >>> y = 2 * X[:, 0] + 0.1 * rng.normal(size=30)
    >>> est = RobustRegressor(radius=0.2).fit(X, y)
    >>> est.solution_.status, est.worst_case_.mmd <= 0.2
    ('solved', True)
    """

    _kind, _loss_at_samples = RegressionLoss, "square"

    def predict(self, X: Any) -> np.ndarray:
        """f at the rows of X."""
        return self._scores(X)[:, 0] + self._model.offset

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        y = as_vector(y, "y") if np.asarray(y).ndim == 1 else require_numbers(y, "y")
        X, y = validate_data(self, require_numbers(X), y, dtype=np.float64, y_numeric=True)
        return X, np.asarray(y, dtype=np.float64)


def _has_probabilities(estimator: RobustClassifier) -> bool:
    loss = estimator._loss_for(estimator._shift_for([estimator.radius]))
    if not isinstance(loss, LogisticLoss):
        raise AttributeError(f"probabilities come with loss='logistic'; got loss={loss!r}")
    return True


class RobustClassifier(ClassifierMixin, RobustEstimator):
    r"""Classification that is robust to distribution shift.

    Minimizes the worst expected loss over distributions p of (x, label) whose MMD to the data is at
    most the radius: min over scores of max over p of E_p[loss(scores(x), label)] + α‖θ‖². The
    kernel of the MMD is k(x, x')·1[label = label'].

    Parameters
    ----------
    radius : float, "auto" or "bootstrap", default="auto"
        Size of the MMD ball, as for :class:`~ksos.RobustRegressor`.
    model : {"linear", "kernel"}, default="linear"
        What scores are made of.
    loss : {"square", "logistic", "hinge"} or ClassificationLoss, optional
        "logistic" gives ``predict_proba``. "hinge" is for two labels. Default: "logistic" if the
        samples are reweighted, as with ``radius="auto"``, else "square".
    alpha, n_centers, model_bandwidth
        See :class:`~ksos.RobustRegressor`.
    bandwidth, embedding_bandwidth : float or array of d floats, optional
        Bandwidths of x, as for :class:`~ksos.RobustRegressor`. Labels have none.
    measure : Box or Lebesgue, optional
        Domain of x.
    n_support, tol, rtol, time_limit, random_state
        See :class:`~ksos.RobustRegressor`.
    shift : {"x", "y", "both", "anywhere"}, optional
        See :class:`~ksos.RobustRegressor`. With "y" the shares of the labels shift, and the
        distribution of x given the label does not.
    verbose : int, default=0

    Attributes
    ----------
    classes_ : ndarray
    coef_, intercept_ : ndarray (labels, d), ndarray (labels,)
        The scores of the linear model in the units of X. For two labels, the score of the second
        alone, shapes (1, d) and (1,).
    centers_ : ndarray (centers, d)
        The centers of the kernel model.
    theta_ : ndarray (scores, functions)
    worst_case_ : WorstCase or None
        The worst density, a :class:`~ksos.space.labeled.LabeledDensity`. None at radius 0.
    prepared_for_ : PreparedFor
        Means and standard deviations of the columns, and shares of the labels, in the data and in
        the worst case.
    solution_ : RobustSolution
    ball_ : Ball
        The ball, of radius ``radius_``.
    radius_ : float
    n_features_in_, feature_names_in_

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(-1, 0.5, (20, 1)), rng.normal(1, 0.5, (20, 1))])
    >>> est = RobustClassifier(radius=0.15).fit(X, ["no"] * 20 + ["yes"] * 20)
    >>> est.predict([[-1.0], [1.0]]).tolist(), est.solution_.status, est.worst_case_.mmd <= 0.15
    (['no', 'yes'], 'solved', True)
    """

    _kind, _loss_at_samples = ClassificationLoss, "logistic"

    def decision_function(self, X: Any) -> np.ndarray:
        """The scores, shape (n, labels). For two labels that of the second alone, shape (n,)."""
        scores = self._scores(X)
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> np.ndarray:
        """The label with the largest score."""
        best = np.argmax(self._with_zero(X), axis=1)
        return self.classes_[best]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """The softmax of the scores, shape (n, labels), for the logistic loss."""
        return np.asarray(softmax(self._with_zero(X), axis=1))

    # The scores of all labels: of two, the first has the score 0.
    def _with_zero(self, X: Any) -> np.ndarray:
        scores = self._scores(X)
        return scores if scores.shape[1] > 1 else np.column_stack([np.zeros(len(scores)), scores])

    def _checked(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray]:
        require_unmasked(y, "y")  # labels may be words
        if (labels := np.asarray(y)).ndim == 1:
            require_complete(labels, "y")
        X, y = validate_data(self, require_numbers(X), y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if self.classes_.shape[0] < 2:
            raise ValueError(
                "a classifier needs samples of at least 2 classes in the data; got one class, "
                f"{self.classes_[0]!r}"
            )
        return X, codes
