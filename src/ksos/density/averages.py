"""Averages under a density: moments, expectations, entropy, the level of a region, and distances to
other densities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ksos.density.estimate import Estimate
from ksos.density.questions import condition, without_underflow
from ksos.density.questions.divergence import kl_divergence, l2_distance
from ksos.density.questions.expectation import (
    Work,
    entropy,
    expectation,
    highest_density_level,
)
from ksos.density.questions.moments import mean_and_covariance, moment
from ksos.density.scores import Scores
from ksos.density.terms import Terms
from ksos.ground import Run, as_count, as_positive, as_powers, order_of


@without_underflow
class Averages(Scores):
    """Averages under a density, which :class:`~ksos.SoSDensity` inherits."""

    def _other(self, other: Any) -> Terms:
        """Another density, its features in the order of this one's."""
        if not isinstance(other, Averages):
            raise TypeError(f"other must be a density such as this one; got {type(other).__name__}")
        terms, order = other.terms.on_host, None
        if terms.n_features == self.terms.n_features:
            order = order_of(other.feature_names, self.feature_names, "other")
        return terms if order is None else condition.marginal(terms, order)

    def moment(
        self, powers: int | Sequence[int] | Mapping[Any, int], *, central: bool = False
    ) -> float:
        """E[Π_k x_k^{powers_k}], exactly; with ``central``, of x − E[x].

        Parameters
        ----------
        powers : int, sequence of d whole numbers, or dict {feature: exponent}
            An exponent for each feature; one number for a density of one feature. Features that a
            mapping lacks have exponent 0.
        central : bool
            Take powers of x − E[x].

        Returns
        -------
        float

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[3.0, 0.0]], [[1.0]], normalize=True)
        >>> round(p.moment([1, 2]), 9), round(p.moment([4, 0], central=True), 9)
        (3.0, 3.0)
        """
        exponents = as_powers(powers, self.terms.n_features, self.feature_names)
        about = (
            mean_and_covariance(self.terms.on_host)[0]
            if central
            else np.zeros(self.terms.n_features)
        )
        return moment(self.terms.on_host, exponents, about)

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
            How often f is evaluated at most. Default: 2,000,000 for cubature, fewer for more than
            50 support points, and 65,536 for quasi-Monte Carlo.
        rng : seed or Generator, optional
            For quasi-Monte Carlo.

        Returns
        -------
        Estimate

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)
        >>> value = p.expectation(lambda X: np.exp(X[:, 0]))
        >>> round(value, 9), value.error < 1e-8  # e^{1/2}
        (1.648721271, True)
        """
        with Run(name="expectation"):
            return expectation(self.terms.on_host, f, as_work(rtol, max_evaluations, rng))

    def entropy(
        self, rng: Any = None, *, rtol: float = 1e-8, max_evaluations: int | None = None
    ) -> Estimate:
        """−∫ p log p dρ, *relative to the measure*, a float with the estimate of its error.

        On Lebesgue measure and boxes this is the differential entropy; on ``Normal`` it is minus
        the divergence from that normal distribution; on a discrete measure a sum. Cubature in up to
        three features, quasi-Monte Carlo beyond, and in three features with several hundred support
        points.

        Parameters
        ----------
        rng, rtol, max_evaluations
            Those of :meth:`expectation`.

        Returns
        -------
        Estimate
        """
        with Run(name="entropy"):
            return entropy(self.terms.on_host, as_work(rtol, max_evaluations, rng))

    def kl_divergence(
        self, other: Any, rng: Any = None, *, rtol: float = 1e-8, max_evaluations: int | None = None
    ) -> Estimate:
        """∫ log(dP/dQ) dP between this distribution P and ``other`` Q, with its error.

        The measures may differ as long as both are discrete or neither. It is infinite where this
        density has mass outside of the box of the other.

        Parameters
        ----------
        other : SoSDensity
            Q.
        rng, rtol, max_evaluations
            Those of :meth:`expectation`.

        Returns
        -------
        Estimate
        """
        work = as_work(rtol, max_evaluations, rng)
        return kl_divergence(self.terms.on_host, self._other(other), work)

    def l2_distance(self, other: Any, *, max_operations: float = 1e13) -> float:
        """(∫ (p − q)² dρ)^{1/2}, exactly, for densities with respect to the same measure (or
        Lebesgue measure and boxes).

        Parameters
        ----------
        other : SoSDensity
            q.
        max_operations : float
            A distance predicted to take more floating-point operations raises.

        Returns
        -------
        float
        """
        most = as_positive(max_operations, "max_operations")
        return l2_distance(self.terms.on_host, self._other(other), most)

    def mmd(self, other: Any, kernel: Any = None, landmarks: Any = None) -> float:
        """:func:`ksos.mmd` between this density and another, samples or an embedding.

        Parameters
        ----------
        other : density, array (n, d), data frame or MeanEmbedding
            What to compare with.
        kernel : Kernel, optional
            Of the embedding. Default: that of this density.
        landmarks : array (ℓ, d), optional
            Take the MMD projected on these. Default: the exact one.

        Returns
        -------
        float
        """
        from ksos.space.embedding import mmd  # which is built on densities

        return mmd(self, other, kernel=kernel, landmarks=landmarks)

    def hdr_level(self, mass: float, rng: Any = None) -> Estimate:
        """The level t whose highest-density region {x : pdf(x) ≥ t} has a given probability.

        To rounding in one feature and on discrete measures (where it is the largest t with at least
        that mass); from quasi-Monte Carlo in several features, with the estimate of its error as
        ``.error``.

        Parameters
        ----------
        mass : float
            The probability of the region, below 1.
        rng : seed or Generator, optional
            For quasi-Monte Carlo and samples.

        Returns
        -------
        Estimate

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)
        >>> float(np.isclose(p.hdr_level(0.95), p.pdf([[1.959963984540054]])[0], rtol=1e-10))
        1.0
        """
        level = as_positive(mass, "mass")
        if level >= 1.0:
            raise ValueError(f"mass must be less than 1, the mass of everything; got {mass!r}")
        with Run(name="level of a highest-density region"):
            return highest_density_level(self.terms.on_host, level, rng)


def as_work(rtol: float, max_evaluations: int | None, rng: Any) -> Work:
    """How accurately a question is to be answered, checked."""
    most = max_evaluations
    if most is not None:
        most = as_count(most, "max_evaluations", minimum=1000)
    return {"rtol": as_positive(rtol, "rtol"), "max_evaluations": most, "rng": rng}
