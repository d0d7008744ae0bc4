"""What one asks of a distribution: probabilities, quantiles, moments, expectations, information, distances, modes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from ksos._array import like, to_numpy
from ksos._validation import as_box, as_count, as_levels, as_points, as_positive, as_powers
from ksos.density.cdf import box_masses, cumulative, quantiles
from ksos.density.divergence import entropy, kl_divergence, l2_distance
from ksos.density.expectation import Estimate, expectation
from ksos.density.hdr import highest_density_level
from ksos.density.modes import log_and_gradient, modes
from ksos.density.moments import moment

if TYPE_CHECKING:
    from ksos.density.sos import SoSDensity

__all__ = ["Queries"]


class Queries:
    """The questions that :class:`~ksos.SoSDensity` answers beyond its values, mean and covariance."""

    @property
    def _density(self) -> SoSDensity:
        """This density in NumPy arrays: answers are computed on the host and go back to where the density lies."""
        return cast("SoSDensity", self).on_host()

    def _rows(self, X: Any) -> np.ndarray:
        return to_numpy(as_points(X, "X", n_features=cast("SoSDensity", self).n_features))

    def _back(self, found: np.ndarray) -> Any:
        return like(found, cast("SoSDensity", self).support_points)

    def probability(self, low: Any, high: Any) -> Any:
        """P(low ≤ x ≤ high), exactly; bounds may be infinite.

        With a metric that ties the features it is exact to 1e-11 where sides of at most three tied features are finite. Beyond, it is an
        estimate by quasi-Monte Carlo, good to about 1e-5, and that of one box is a float with the estimate of its error as ``.error``.

        Parameters
        ----------
        low, high : float, array of d floats, or array (n, d)
            The sides of a box, one number standing for all features; with rows, of n boxes, and the answer has shape (n,).

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[0.0, 0.0]], [[1.0]], normalize=True)  # two standard normal features
        >>> round(p.probability([-1.0, -np.inf], [1.0, np.inf]), 6)
        0.682689
        """
        low, high, many = as_box(low, high, self._density.n_features, closed=self._density.measure.atoms is not None)
        found, errors = box_masses(self._density, low, high)
        if many:
            return self._back(found)
        return float(found[0]) if errors[0] == 0.0 else Estimate(float(found[0]), float(errors[0]), "quasi-Monte Carlo")

    def cdf(self, X: Any) -> np.ndarray:
        """P(x_k ≤ X_ik for all k), shape (n,); as good as :meth:`probability`."""
        return self._back(cumulative(self._density, self._rows(X)))

    def ppf(self, q: Any) -> Any:
        """The quantiles of a density of one feature: the x with cdf(x) = q, a number or an array like ``q``.

        At 0 and 1 it is the end of the measure (±inf, or the boundary of a box); on a discrete measure, the first node whose distribution
        function reaches q.

        >>> from ksos import SoSDensity, kernels
        >>> SoSDensity(kernels.Gaussian(2.0), [[0.0]], [[1.0]], normalize=True).ppf([0.0, 0.25, 0.975]).round(6)
        array([     -inf, -0.67449 ,  1.959964])
        """
        d = self._density.n_features
        if d != 1:
            raise ValueError(f"quantiles are for one feature; this density has {d}; take one of them, as in p.marginal([0]).ppf(q)")
        levels = as_levels(q, "q")
        found = quantiles(self._density, np.atleast_1d(levels))
        return self._back(found) if levels.ndim else float(found[0])

    def moment(self, powers: int | Sequence[int], *, central: bool = False) -> float:
        """E[Π_k x_k^{powers_k}], exactly; with ``central``, of x − E[x].

        Parameters
        ----------
        powers : int or sequence of d whole numbers
            An exponent for each feature; one number for a density of one feature.
        central : bool
            Take powers of x − E[x].

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[3.0, 0.0]], [[1.0]], normalize=True)  # normal with mean (3, 0) and unit variance
        >>> round(p.moment([1, 2]), 9), round(p.moment([4, 0], central=True), 9)
        (3.0, 3.0)
        """
        d = self._density.n_features
        return moment(self._density, as_powers(powers, d), self._density.mean() if central else np.zeros(d))

    def expectation(self, f: Any, *, rtol: float = 1e-8, max_evaluations: int | None = None, rng: Any = None) -> Estimate:
        """E[f(x)], a float with the estimate of its error as ``.error``.

        Parameters
        ----------
        f : observable or callable
            A :class:`~ksos.observables.Polynomial`, :class:`~ksos.observables.KernelFunction` or
            :class:`~ksos.observables.BoxIndicator`, or a sum of multiples of them: closed form. Or any function of an array (n, d) that
            returns n numbers: a sum on a discrete measure, adaptive cubature in up to three features, quasi-Monte Carlo beyond.
        rtol : float
            Refinement stops at an error of this much of E|f|.
        max_evaluations : int, optional
            How often f is evaluated at most; the default is 2 000 000 for cubature and 65 536 for quasi-Monte Carlo.
        rng : seed or Generator, optional
            For quasi-Monte Carlo.

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)
        >>> value = p.expectation(lambda X: np.exp(X[:, 0]))
        >>> round(value, 9), value.error < 1e-8  # e^{1/2}
        (1.648721271, True)
        """
        return expectation(self._density, f, **_work(rtol, max_evaluations, rng))

    def entropy(self, rng: Any = None, *, rtol: float = 1e-8, max_evaluations: int | None = None) -> Estimate:
        """−∫ p log p dρ, *relative to the measure*, a float with the estimate of its error as ``.error``.

        On Lebesgue measure and boxes this is the differential entropy; on ``Normal`` it is minus the divergence from that normal law; on a
        discrete measure a sum. Cubature in up to three features, quasi-Monte Carlo (``rng``) beyond; the arguments are those of
        :meth:`expectation`.
        """
        return entropy(self._density, **_work(rtol, max_evaluations, rng))

    def kl_divergence(self, other: SoSDensity, rng: Any = None, *, rtol: float = 1e-8, max_evaluations: int | None = None) -> Estimate:
        """∫ log(dP/dQ) dP between this distribution P and ``other`` Q, whatever their measures are as long as both are discrete or neither.

        Infinite where this density has mass outside of the box of the other. A float with the estimate of its error as ``.error``; the
        arguments are those of :meth:`expectation`.
        """
        return kl_divergence(self._density, _as_density(other), **_work(rtol, max_evaluations, rng))

    def l2_distance(self, other: SoSDensity, *, max_operations: float = 1e13) -> float:
        """(∫ (p − q)² dρ)^{1/2}, exactly, both being densities with respect to the same measure (or Lebesgue measure and boxes).

        A distance predicted to take more than ``max_operations`` floating-point operations is refused.
        """
        return l2_distance(self._density, _as_density(other), as_positive(max_operations, "max_operations"))

    def mmd(self, other: Any, kernel: Any = None, landmarks: Any = None) -> float:
        """:func:`ksos.mmd` between this density and another, samples or an embedding; exact, or projected when landmarks are given."""
        from ksos.embedding import mmd  # which is built on densities

        return mmd(self, other, kernel=kernel, landmarks=landmarks)

    def hdr_level(self, mass: float, rng: Any = None) -> Estimate:
        """The level t whose highest-density region {x : pdf(x) ≥ t} has probability ``mass``; the pdf is that relative to the measure.

        To rounding in one feature and on discrete measures (where it is the largest t with at least that mass); from a grid in two and
        three features, from quasi-Monte Carlo (``rng``) beyond, with the estimate of its error as ``.error``.

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)
        >>> float(np.isclose(p.hdr_level(0.95), p.pdf([[1.959963984540054]])[0], rtol=1e-10))
        1.0
        """
        level = as_positive(mass, "mass")
        if level >= 1.0:
            raise ValueError(f"mass must be less than 1, the mass of everything; got {mass!r}")
        return highest_density_level(self._density, level, rng)

    def mode(self, *, all_local: bool = False, n_starts: int = 64) -> np.ndarray:
        """The x with the largest pdf (relative to the measure), shape (d,).

        Climbs start from the ``n_starts`` best support points and, in one and two features, maxima of a grid; on a discrete measure it is
        the best node. With ``all_local``, every local maximum that a climb reaches, the largest first, shape (k, d).

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(1.0), [[0.0], [4.0]], [[1.0], [2.0]], normalize=True)
        >>> p.mode().round(6), p.mode(all_local=True).shape
        (array([4.]), (2, 1))
        """
        found = modes(self._density, as_count(n_starts, "n_starts"), every=bool(all_local))
        return self._back(found if all_local else found[0])

    def grad_logpdf(self, X: Any) -> np.ndarray:
        """∇ log p at the rows of ``X``, shape (n, d).

        It is 0 where the density vanishes, and at the tip of a Laplace kernel the mean of the slopes on both sides.
        """
        return self._back(log_and_gradient(self._density, self._rows(X))[1])


def _work(rtol: float, max_evaluations: int | None, rng: Any) -> dict[str, Any]:
    most = None if max_evaluations is None else as_count(max_evaluations, "max_evaluations", minimum=1000)
    return {"rtol": as_positive(rtol, "rtol"), "max_evaluations": most, "rng": rng}


def _as_density(other: Any) -> SoSDensity:
    if not isinstance(other, Queries):
        raise TypeError(f"other must be a density such as this one; got {type(other).__name__}")
    return other._density
