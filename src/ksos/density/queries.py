"""What one asks of a distribution: probabilities, quantiles, moments, expectations, information,
distances, modes.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from ksos.density._quiet import without_underflow
from ksos.density.cdf import box_masses, cumulative, quantiles
from ksos.density.divergence import entropy, kl_divergence, l2_distance
from ksos.density.expectation import Estimate, Masses, expectation
from ksos.density.given import given_masses
from ksos.density.hdr import highest_density_level
from ksos.density.modes import log_and_gradient, modes
from ksos.density.moments import moment
from ksos.ground.arrays import Array, like, to_numpy
from ksos.ground.names import as_feature_names, frame, in_order, order_of, series
from ksos.ground.progress import shown
from ksos.ground.validation import (
    as_box,
    as_conditions,
    as_count,
    as_levels,
    as_points,
    as_positive,
    as_powers,
)

if TYPE_CHECKING:
    from ksos.density.mixture import SoSMixture
    from ksos.density.sos import SoSDensity
    from ksos.measures import Measure

__all__ = ["Answers", "OwnAnswers", "Queries"]


class Answers(ABC):
    """What a law must know for :class:`Queries`: input has been checked, everything is in NumPy
    arrays.
    """

    @abstractmethod
    def box_masses(self, low: np.ndarray, high: np.ndarray) -> Masses:
        """P(low_b ≤ x ≤ high_b), shape (n,), estimates of the errors, 0 for what is exact to
        rounding, and the method.
        """

    @abstractmethod
    def cumulative(self, X: np.ndarray) -> np.ndarray:
        """P(x ≤ X_i), shape (n,)."""

    @abstractmethod
    def quantiles(self, q: np.ndarray) -> np.ndarray:
        """The inverse, for one feature."""

    @abstractmethod
    def moment(self, powers: tuple[int, ...], about: np.ndarray) -> float:
        """E[Π (x − about)^powers]."""

    @abstractmethod
    def expectation(
        self, f: Any, *, rtol: float, max_evaluations: int | None, rng: Any
    ) -> Estimate:
        """E[f(x)]."""

    @abstractmethod
    def entropy(self, *, rtol: float, max_evaluations: int | None, rng: Any) -> Estimate:
        """−∫ p log p dρ."""

    @abstractmethod
    def kl_divergence(self, other: Queries, **work: Any) -> Estimate:
        """∫ log(dP/dQ) dP."""

    @abstractmethod
    def l2_distance(self, other: Queries, max_operations: float) -> float:
        """(∫ (p − q)² dρ)^{1/2}."""

    @abstractmethod
    def level(self, mass: float, rng: Any) -> Estimate:
        """The level of the highest-density region with this mass."""

    @abstractmethod
    def modes(self, n_starts: int, *, every: bool) -> np.ndarray:
        """The largest maximum, or every one found, shape (k, d)."""

    @abstractmethod
    def gradient(self, X: np.ndarray) -> np.ndarray:
        """∇ log p, shape (n, d)."""


class OwnAnswers(Answers):
    """Those of a sum of squares over one kernel, most of them in closed form."""

    def __init__(self, density: SoSDensity) -> None:
        self.p = density

    def box_masses(self, low: np.ndarray, high: np.ndarray) -> Masses:
        return box_masses(self.p, low, high)

    def cumulative(self, X: np.ndarray) -> np.ndarray:
        return cumulative(self.p, X)

    def quantiles(self, q: np.ndarray) -> np.ndarray:
        return quantiles(self.p, q)

    def moment(self, powers: tuple[int, ...], about: np.ndarray) -> float:
        return moment(self.p, powers, about)

    def expectation(
        self, f: Any, *, rtol: float, max_evaluations: int | None, rng: Any
    ) -> Estimate:
        return expectation(self.p, f, rtol=rtol, max_evaluations=max_evaluations, rng=rng)

    def entropy(self, *, rtol: float, max_evaluations: int | None, rng: Any) -> Estimate:
        return entropy(self.p, rtol=rtol, max_evaluations=max_evaluations, rng=rng)

    def kl_divergence(self, other: Queries, **work: Any) -> Estimate:
        q = other.plain
        return (
            self.p.as_mixture().answers.kl_divergence(other, **work)
            if q is None
            else kl_divergence(self.p, q, **work)
        )

    def l2_distance(self, other: Queries, max_operations: float) -> float:
        q = other.plain
        return (
            self.p.as_mixture().answers.l2_distance(other, max_operations)
            if q is None
            else l2_distance(self.p, q, max_operations)
        )

    def level(self, mass: float, rng: Any) -> Estimate:
        return highest_density_level(self.p, mass, rng)

    def modes(self, n_starts: int, *, every: bool) -> np.ndarray:
        return modes(self.p, n_starts, every=every)

    def gradient(self, X: np.ndarray) -> np.ndarray:
        return log_and_gradient(self.p, X)[1]


@without_underflow
class Queries(ABC):
    """The questions that a distribution answers beyond its values, mean and covariance, whatever it
    is made of.
    """

    measure: Measure
    support_points: Array
    feature_names: tuple[str, ...] | None = None
    """Names of the features, if they have any: columns of tables are found by them, and a feature
    may be given by its name or number.
    """
    _without_names: Any = None

    def with_feature_names(self, names: Any) -> Self:
        """The same law with these names of its features; None removes them.

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[3.0, 0.0]], [[1.0]], normalize=True).with_feature_names(["hp", "mpg"])
        >>> p.marginal("mpg").feature_names, round(p.probability(low={"hp": 3.0}), 9)
        (('mpg',), 0.5)
        """
        if names is None:
            return self.unnamed
        out = copy.copy(self.unnamed)
        out.feature_names, out._without_names = (
            as_feature_names(names, self.n_features),
            self.unnamed,
        )
        return out

    def _take_names(self, names: tuple[str, ...] | None) -> None:
        """Names for a law that is being made."""
        if names is not None:
            self._without_names, self.feature_names = copy.copy(self), names

    @property
    def unnamed(self) -> Self:
        """The same law without names: what the library itself asks, with arrays."""
        return self if self._without_names is None else cast("Self", self._without_names)

    def _with_names_of(self, other: Queries, features: Sequence[int] | None = None) -> Self:
        """This law of some ``features`` of another one, in this order, under their names there."""
        names = other.feature_names
        return self.with_feature_names(
            names if names is None or features is None else [names[k] for k in features]
        )

    @property
    @abstractmethod
    def n_features(self) -> int:
        """The dimension d."""

    @property
    @abstractmethod
    def plain(self) -> SoSDensity | None:
        """This law in NumPy arrays, if it is a sum of squares over one kernel that answers for
        itself.
        """

    @abstractmethod
    def as_mixture(self) -> SoSMixture:
        """This law in NumPy arrays as a mixture with respect to the same measure."""

    @property
    def _answers(self) -> Answers:
        """Answers are computed on the host and go back to where the law lies."""
        return (
            self.unnamed.as_mixture().answers
            if (p := self.plain) is None
            else OwnAnswers(p.unnamed)
        )

    @property
    @abstractmethod
    def bandwidths(self) -> np.ndarray:
        """Per feature the length on which the density varies, shape (d,)."""

    @abstractmethod
    def on_host(self) -> Self:
        """The same law in NumPy arrays."""

    @abstractmethod
    def by_volume(self) -> Queries:
        """The same law as a density in the usual sense, p·dρ/dx; itself on volume, boxes and
        discrete measures.
        """

    @abstractmethod
    def marginal(self, features: Any) -> Queries:
        """The law of some features, in the order given."""

    @abstractmethod
    def conditional(self, conditions: Any) -> Queries:
        """The law of the other features given {feature: value or (low, high)}."""

    @abstractmethod
    def logpdf(self, X: Any) -> Array:
        """log p(X_i), shape (n,)."""

    @abstractmethod
    def pdf(self, X: Any) -> Array:
        """p(X_i), shape (n,)."""

    @abstractmethod
    def mean(self, *, as_frame: bool = False) -> Any:
        """E[x], shape (d,); with ``as_frame`` a pandas Series."""

    def log_by_volume(self, X: Any) -> Array:
        """log p(X_i)·dρ/dx; on atoms the density relative to their measure, as it is."""
        X = self._points(X)
        log_p = self.unnamed.logpdf(X)
        return (
            log_p + self.measure.log_density(X)
            if self.measure.normals(self.n_features) is not None
            else log_p
        )

    def node_masses(self) -> np.ndarray:
        """The mass of every node of a discrete measure."""
        if (atoms := self.measure.atoms) is None:
            raise TypeError(
                f"a density on a Discrete measure is needed; this one is on {self.measure!r}"
            )
        mass = atoms.weights * to_numpy(self.unnamed.pdf(like(atoms.points, self.support_points)))
        return np.asarray(mass / mass.sum())

    def _points(self, X: Any, name: str = "X") -> Array:
        """Rows (n, d), the columns of a table in the order of the features."""
        return as_points(in_order(X, self.feature_names, name), name, n_features=self.n_features)

    def _rows(self, X: Any) -> np.ndarray:
        return to_numpy(self._points(X))

    def _other(self, other: Any) -> Queries:
        """Another law, its features in the order of this one's."""
        if not isinstance(other, Queries):
            raise TypeError(f"other must be a density such as this one; got {type(other).__name__}")
        order = (
            order_of(other.feature_names, self.feature_names, "other")
            if other.n_features == self.n_features
            else None
        )
        return other.unnamed if order is None else other.unnamed.marginal(order)

    def _back(self, found: np.ndarray) -> Any:
        return like(found, self.support_points)

    def box_masses(self, low: np.ndarray, high: np.ndarray) -> Masses:
        """P(low_b ≤ x ≤ high_b) of every box b, the sides given as rows, estimates of the errors,
        and the method.
        """
        return self._answers.box_masses(low, high)

    def probability(self, low: Any = -np.inf, high: Any = np.inf, given: Any = None) -> Any:
        """P(low ≤ x ≤ high), exactly, or P(low ≤ x ≤ high | given); bounds may be infinite.

        With a metric that ties the features it is exact to 1e-11 where sides of at most three tied
        features are finite. Beyond, it is an estimate by quasi-Monte Carlo, good to about 1e-4, and
        that of one box is a float with the estimate of its error as ``.error``; so is a closed form
        (``.method`` says which) of which rounding leaves fewer digits than 1e-11.

        Parameters
        ----------
        low, high : float, array of d floats, array (n, d), or mapping {feature: bound}
            The sides of a box, one number standing for all features; with rows, of n boxes, and the
            answer has shape (n,). A mapping bounds the features that it has, by name or number, and
            no others.
        given : dict, optional
            {feature: value or (low, high)}: what is known. The probability is that of the box among
            the x for which this holds.

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[0.0, 0.0]], [[1.0]], normalize=True)  # two standard normal features
        >>> round(p.probability([-1.0, -np.inf], [1.0, np.inf]), 6)
        0.682689
        >>> round(p.probability(0.0, np.inf, given={0: 1.0, 1: (-1.0, 3.0)}), 6)  # (Φ(3) − Φ(0)) / (Φ(3) − Φ(−1))
        0.593635
        """
        low, high, many = as_box(
            low,
            high,
            self.n_features,
            closed=self.measure.atoms is not None,
            names=self.feature_names,
        )
        if given is None:
            found, errors, method = self.box_masses(low, high)
        else:
            known = as_conditions(given, self.n_features, self.feature_names, leave_none=True)
            found, errors, method = given_masses(
                self.unnamed.on_host(), low, high, *known, self.feature_names
            )
        if many:
            return self._back(found)
        return (
            float(found[0])
            if errors[0] == 0.0
            else Estimate(float(found[0]), float(errors[0]), method)
        )

    def cdf(self, X: Any) -> np.ndarray:
        """P(x_k ≤ X_ik for all k), shape (n,); as good as :meth:`probability`."""
        return self._back(self._answers.cumulative(self._rows(X)))

    def ppf(self, q: Any) -> Any:
        """The quantiles of a density of one feature: the x with cdf(x) = q, a number or an array
        like ``q``.

        At 0 and 1 it is the end of the measure (±inf, or the boundary of a box); on a discrete
        measure, the first node whose distribution function reaches q.

        >>> from ksos import SoSDensity, kernels
        >>> SoSDensity(kernels.Gaussian(2.0), [[0.0]], [[1.0]], normalize=True).ppf([0.0, 0.25, 0.975]).round(6)
        array([     -inf, -0.67449 ,  1.959964])
        """
        d = self.n_features
        if d != 1:
            first = 0 if self.feature_names is None else self.feature_names[0]
            raise ValueError(
                f"quantiles are for one feature; this density has {d}; take one of them, as in"
                f" p.marginal([{first!r}]).ppf(q)"
            )
        levels = as_levels(q, "q")
        found = self._answers.quantiles(np.atleast_1d(levels))
        return self._back(found) if levels.ndim else float(found[0])

    def moment(
        self, powers: int | Sequence[int] | Mapping[Any, int], *, central: bool = False
    ) -> float:
        """E[Π_k x_k^{powers_k}], exactly; with ``central``, of x − E[x].

        Parameters
        ----------
        powers : int, sequence of d whole numbers, or mapping {feature: exponent}
            An exponent for each feature; one number for a density of one feature. Features that a
            mapping lacks have exponent 0.
        central : bool
            Take powers of x − E[x].

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[3.0, 0.0]], [[1.0]], normalize=True)  # normal with mean (3, 0) and unit variance
        >>> round(p.moment([1, 2]), 9), round(p.moment([4, 0], central=True), 9)
        (3.0, 3.0)
        """
        d = self.n_features
        return self._answers.moment(
            as_powers(powers, d, self.feature_names),
            to_numpy(self.mean()) if central else np.zeros(d),
        )

    def expectation(
        self, f: Any, *, rtol: float = 1e-8, max_evaluations: int | None = None, rng: Any = None
    ) -> Estimate:
        """E[f(x)], a float with the estimate of its error as ``.error``.

        Parameters
        ----------
        f : observable or callable
            A :class:`~ksos.observables.Polynomial`, :class:`~ksos.observables.KernelFunction` or
            :class:`~ksos.observables.BoxIndicator`, or a sum of multiples of them: closed form. Or
            any function of an array (n, d) that returns n numbers: a sum on a discrete measure,
            adaptive cubature in up to three features, quasi-Monte Carlo beyond.
        rtol : float
            Refinement stops at an error of this much of E|f|.
        max_evaluations : int, optional
            How often f is evaluated at most; the default is 2 000 000 for cubature, fewer for more
            than 125 support points, and 65 536 for quasi-Monte Carlo.
        rng : seed or Generator, optional
            For quasi-Monte Carlo.

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)
        >>> value = p.expectation(lambda X: np.exp(X[:, 0]))
        >>> round(value, 9), value.error < 1e-8  # e^{1/2}
        (1.648721271, True)
        """
        with shown("expectation"):
            return self._answers.expectation(f, **_work(rtol, max_evaluations, rng))

    def entropy(
        self, rng: Any = None, *, rtol: float = 1e-8, max_evaluations: int | None = None
    ) -> Estimate:
        """−∫ p log p dρ, *relative to the measure*, a float with the estimate of its error as
        ``.error``.

        On Lebesgue measure and boxes this is the differential entropy; on ``Normal`` it is minus
        the divergence from that normal law; on a discrete measure a sum. Cubature in up to three
        features, quasi-Monte Carlo (``rng``) beyond, and in three features with several hundred
        support points; the arguments are those of :meth:`expectation`.
        """
        with shown("entropy"):
            return self._answers.entropy(**_work(rtol, max_evaluations, rng))

    def kl_divergence(
        self,
        other: Queries,
        rng: Any = None,
        *,
        rtol: float = 1e-8,
        max_evaluations: int | None = None,
    ) -> Estimate:
        """∫ log(dP/dQ) dP between this distribution P and ``other`` Q, whatever their measures are
        as long as both are discrete or neither.

        Infinite where this density has mass outside of the box of the other. A float with the
        estimate of its error as ``.error``; the arguments are those of :meth:`expectation`.
        """
        return self._answers.kl_divergence(self._other(other), **_work(rtol, max_evaluations, rng))

    def l2_distance(self, other: Queries, *, max_operations: float = 1e13) -> float:
        """(∫ (p − q)² dρ)^{1/2}, exactly, both being densities with respect to the same measure (or
        Lebesgue measure and boxes).

        A distance predicted to take more than ``max_operations`` floating-point operations is
        refused.
        """
        return self._answers.l2_distance(
            self._other(other), as_positive(max_operations, "max_operations")
        )

    def mmd(self, other: Any, kernel: Any = None, landmarks: Any = None) -> float:
        """:func:`ksos.mmd` between this density and another, samples or an embedding; exact, or
        projected when landmarks are given.
        """
        from ksos.space.embedding import mmd  # which is built on densities

        return mmd(self, other, kernel=kernel, landmarks=landmarks)

    def hdr_level(self, mass: float, rng: Any = None) -> Estimate:
        """The level t whose highest-density region {x : pdf(x) ≥ t} has probability ``mass``; the
        pdf is that relative to the measure.

        To rounding in one feature and on discrete measures (where it is the largest t with at least
        that mass); from a grid in two and three features, or from exact samples if three features
        have many support points; from quasi-Monte Carlo (``rng``) beyond, with the estimate of its
        error as ``.error``.

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)
        >>> float(np.isclose(p.hdr_level(0.95), p.pdf([[1.959963984540054]])[0], rtol=1e-10))
        1.0
        """
        level = as_positive(mass, "mass")
        if level >= 1.0:
            raise ValueError(f"mass must be less than 1, the mass of everything; got {mass!r}")
        with shown("level of a highest-density region"):
            return self._answers.level(level, rng)

    def mode(self, *, all_local: bool = False, n_starts: int = 64, as_frame: bool = False) -> Any:
        """The x with the largest pdf (relative to the measure), shape (d,).

        Climbs start from the ``n_starts`` best support points and, in one and two features, maxima
        of a grid; on a discrete measure it is the best node. With ``all_local``, every local
        maximum that a climb reaches, the largest first, shape (k, d). With ``as_frame`` a pandas
        Series or data frame.

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(1.0), [[0.0], [4.0]], [[1.0], [2.0]], normalize=True)
        >>> p.mode().round(6), p.mode(all_local=True).shape
        (array([4.]), (2, 1))
        """
        found = self._answers.modes(as_count(n_starts, "n_starts"), every=bool(all_local))
        if as_frame:
            return (
                frame(found, self.feature_names)
                if all_local
                else series(found[0], self.feature_names)
            )
        return self._back(found if all_local else found[0])

    def grad_logpdf(self, X: Any) -> np.ndarray:
        """∇ log p at the rows of ``X``, shape (n, d).

        It is 0 where the density vanishes, and at the tip of a Laplace kernel the mean of the
        slopes on both sides.
        """
        return self._back(self._answers.gradient(self._rows(X)))


def _work(rtol: float, max_evaluations: int | None, rng: Any) -> dict[str, Any]:
    most = (
        None
        if max_evaluations is None
        else as_count(max_evaluations, "max_evaluations", minimum=1000)
    )
    return {"rtol": as_positive(rtol, "rtol"), "max_evaluations": most, "rng": rng}
