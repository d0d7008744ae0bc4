"""SoSDensity: a probability density as a sum of kernel squares, and what one asks of it."""

from __future__ import annotations

import copy
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from ksos.density.averages import Averages
from ksos.density.compress import Compression, as_sizes, compressed
from ksos.density.estimate import Estimate
from ksos.density.questions import condition, transform, without_underflow
from ksos.density.questions.mass import Masses, box_masses, cumulative, masses_within, quantiles
from ksos.density.questions.modes import log_and_gradient, modes
from ksos.density.questions.moments import mean_and_covariance
from ksos.density.sampling import draw_terms
from ksos.density.square import NoMass, Square
from ksos.density.terms import Terms, as_by_volume, as_term
from ksos.ground import (
    Array,
    Run,
    as_box,
    as_conditions,
    as_count,
    as_feature_names,
    as_features,
    as_invertible,
    as_levels,
    as_metric,
    as_points,
    as_scales,
    as_vector,
    frame,
    instead,
    is_numpy,
    like,
    namespace,
    per_feature,
    quoted,
    said,
    series,
    shown_names,
    square,
    to_device,
    to_numpy,
)
from ksos.integrals import closed_form
from ksos.kernels import Kernel
from ksos.measures import Lebesgue, Measure

_MASS_TOLERANCE = 1e-6  # a mass that differs from one by more is no rounding


@without_underflow
class SoSDensity(Averages):
    r"""A density Σ_c w_c ρ_c(x)·‖c + Fᵀk(x)‖²: a kernel sum of squares, or a mixture of such terms.

    The constructor makes the density of one term,
    p(x) = ‖Fᵀk(x)‖² = Σ_ij B_ij k(x, x̃_i) k(x, x̃_j) with B = FFᵀ. Operations on densities,
    :func:`ksos.mixture` and the estimators make the others. Evaluation goes through the factor F,
    never through B: it cannot be negative.

    Parameters
    ----------
    kernel : Kernel
        The kernel k.
    support_points : array (m, d)
        The x̃_i.
    factor : array (m, k)
        F.
    measure : Measure, optional
        ρ; ``pdf`` is the density *with respect to it*. Default: Lebesgue on R^d.
    constant : array (k,), optional
        c, the row of the constant function, for a measure of finite mass.
    normalize : bool
        Scale F (and c) to mass one. Otherwise a mass that differs from 1 by more than 1e-6 is an
        error.

    Attributes
    ----------
    terms : Terms
        What the density is a sum of, as arrays without names.
    feature_names : tuple of str or None
        Names of the features, if they have any: columns of tables are found by them, and a feature
        may be given by its name or number.

    >>> from ksos.kernels import Gaussian
    >>> p = SoSDensity(Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)  # exp(−x²/2)/√(2π)
    >>> p.pdf([[0.0], [1.0]]).round(6)
    array([0.398942, 0.241971])
    >>> p
    SoSDensity(d=1, m=1, rank=1, kernel=Gaussian(sigma=2.0), measure=Lebesgue())
    """

    @np.errstate(under="ignore")
    def __init__(
        self,
        kernel: Kernel,
        support_points: Any,
        factor: Any,
        measure: Measure | None = None,
        *,
        constant: Any = None,
        normalize: bool = False,
    ) -> None:
        points = as_points(support_points, "support_points", copy=True)
        F = as_points(factor, "factor")
        if F.shape[0] != points.shape[0]:
            raise ValueError(
                f"factor has {F.shape[0]} rows, but there are {points.shape[0]} support points"
            )
        measure = Lebesgue() if measure is None else measure
        F, xp = like(F, points), namespace(points)
        log_unit = float(xp.max(closed_form(kernel, measure, points.shape[1]).log_diagonal(points)))
        if not np.isfinite(log_unit):
            raise ValueError(
                f"the kernel vanishes on {measure!r} at every support point: there is no mass to"
                " normalize"
            )
        largest = float(xp.max(xp.abs(F)))
        if constant is not None:
            constant = like(as_vector(constant, "constant", length=F.shape[1]), points)
            if not math.isfinite(log_mass := measure.log_mass(points.shape[1])):
                raise ValueError(
                    f"the constant function has no finite mass on {measure!r}; use a probability"
                    " measure such as Normal"
                )
            log_unit = max(log_unit, log_mass)
            largest = max(largest, float(xp.max(xp.abs(constant))))
            constant = constant / largest if largest > 0.0 else constant
        F = F / largest if largest > 0.0 else F
        one = Square(kernel, points, F, log_unit, measure, constant)
        mass = one.mass()
        log_mass = np.log(max(mass, 1e-300)) + 2.0 * np.log(max(largest, 1e-300)) + log_unit
        if not normalize and abs(log_mass) > _MASS_TOLERANCE:
            raise ValueError(
                f"the density has mass {np.exp(log_mass):.9g}, not 1; pass normalize=True to"
                " scale it"
            )
        if not mass > 0.0:
            raise ValueError("the factor gives a density without mass: it is zero")
        self.terms = Terms([(1.0, as_term(one.scaled_to_one(mass)))], measure)
        self.feature_names = None

    def _of(
        self, terms: Terms, features: Sequence[int] | None = None, *, named: bool = True
    ) -> Self:
        """A density made from this one, on its device, under the names of its features."""
        out, names, home = copy.copy(self), self.feature_names, self.terms.home
        if names is not None and features is not None:
            names = tuple(names[k] for k in features)
        both = is_numpy(home) and is_numpy(terms.home)
        out.terms = terms if both else terms.moved(lambda array: like(array, home))
        out.feature_names = names if named else None
        return out

    @property
    def measure(self) -> Measure:
        """What the density is relative to."""
        return self.terms.measure

    @property
    def n_features(self) -> int:
        """The dimension d."""
        return self.terms.n_features

    @property
    def support_points(self) -> Array:
        """The x̃_i, shape (m, d); of several terms those of all, and the means of references."""
        own = self.terms.own
        if own is not None and own.joint.n_features == self.n_features:
            return own.joint.support_points
        return self.terms.support_points

    @property
    def kernel(self) -> Kernel:
        """The kernel of the term with the largest weight."""
        _, term = max(self.terms.weighted, key=lambda one: one[0])
        return term.joint.kernel

    @property
    def rank(self) -> int:
        """The number of columns of the factors of all terms."""
        return sum(term.joint.rank for _, term in self.terms.weighted)

    @property
    def factor(self) -> np.ndarray:
        """F with B = FFᵀ, shape (m, rank), of a density of one term."""
        one = square_of(self)
        return one.unit_factor * np.exp(-0.5 * one.log_unit)

    @property
    def components(self) -> list[tuple[float, SoSDensity]]:
        """(weight, density) of the mixture that this density is, each of mass one."""
        return [
            (weight, self._of(Terms([(1.0, term)], term.measure)))
            for weight, term in self.terms.on_host.parts
        ]

    def with_feature_names(self, names: Any) -> Self:
        """The same density with these names of its features; None removes them.

        Parameters
        ----------
        names : sequence of str or None
            One name for each feature.

        Returns
        -------
        SoSDensity

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[3.0, 0.0]], [[1.0]], normalize=True)
        >>> p = p.with_feature_names(["hp", "mpg"])
        >>> p.marginal("mpg").feature_names, round(p.probability(low={"hp": 3.0}), 9)
        (('mpg',), 0.5)
        """
        if names is None and self.feature_names is None:
            return self
        out = copy.copy(self)
        out.feature_names = None if names is None else as_feature_names(names, self.n_features)
        return out

    def to(self, device: Any) -> Self:
        """The same density in torch tensors on a device such as ``"cuda"``; None: in NumPy arrays.

        If there is no such device, the error says why.

        Parameters
        ----------
        device : str, torch.device or None
            Where its arrays shall lie.

        Returns
        -------
        SoSDensity
        """
        host = self.terms.on_host
        terms = host if device is None else host.moved(lambda array: to_device(array, device))
        out = copy.copy(self)
        out.terms = terms
        return out

    def by_volume(self) -> Self:
        """The same distribution as a density with respect to Lebesgue measure: p·dρ/dx.

        On volume, boxes and discrete measures it is the density itself.

        Returns
        -------
        SoSDensity
        """
        if self.measure.normals(self.n_features) is None:
            return self
        parts = [(w, as_by_volume(term)) for w, term in self.terms.on_host.parts]
        return self._of(Terms(parts, Lebesgue()))

    def logpdf(self, X: Any) -> Array:
        """log p(X_i), shape (n,); −inf where the density vanishes, never NaN.

        A density of one feature takes one number as well, and ±inf, where it vanishes.

        Parameters
        ----------
        X : array (n, d)
            Rows of all features.

        Returns
        -------
        array (n,) or float
        """
        return self._at(X, self.terms.logpdf, -math.inf, -math.inf)

    def pdf(self, X: Any) -> Array:
        """p(X_i) ≥ 0, shape (n,). One feature as in :meth:`logpdf`.

        Parameters
        ----------
        X : array (n, d)
            Rows of all features.

        Returns
        -------
        array (n,) or float
        """
        return self._at(X, self.terms.pdf, 0.0, 0.0)

    @instead(seed="rng", random_state="rng")
    def rvs(
        self, size: int = 1, rng: Any = None, *, method: str = "auto", as_frame: bool = False
    ) -> Any:
        """Draw independent samples, shape (size, d).

        Parameters
        ----------
        size : int
            How many.
        rng : seed or numpy.random.Generator, optional
            Source of randomness.
        method : str
            How a term is drawn. ``"inversion"`` inverts the distribution function of each feature
            given the earlier ones, to 1e-9 and better; ``"rejection"`` thins a mixture that
            dominates the density; ``"squares"``, for smooth kernels, draws one column of F, then
            its features in turn, and the first call prepares those that follow. All are exact.
            Over a reference it is ``"rejection"``. Default: the one predicted to be fastest.
        as_frame : bool
            Return a data frame, of the library whose table was fitted: pandas, polars, pyarrow or
            DuckDB. A density that was not fitted to a table gives pandas.

        Returns
        -------
        array (size, d) or frame
        """
        n, generator = as_count(size, "size", minimum=0), np.random.default_rng(rng)
        with Run(name=f"{n} samples"):
            samples = draw_terms(self.terms, n, generator, method)
        return frame(to_numpy(samples), *self._label) if as_frame else self._back(samples)

    def mean(self, *, as_frame: bool = False) -> Any:
        """E[x], shape (d,); with ``as_frame`` a pandas Series, or a frame as in :meth:`rvs`.

        Parameters
        ----------
        as_frame : bool
            Return a pandas Series or a data frame.

        Returns
        -------
        array (d,), Series or frame
        """
        found = mean_and_covariance(self.terms.on_host)[0]
        return series(found, *self._label) if as_frame else self._back(found)

    def cov(self, *, as_frame: bool = False) -> Any:
        """The covariance matrix of x, shape (d, d); with ``as_frame`` a frame.

        Parameters
        ----------
        as_frame : bool
            Return a data frame.

        Returns
        -------
        array (d, d) or frame
        """
        found = mean_and_covariance(self.terms.on_host)[1]
        return square(found, *self._label) if as_frame else self._back(found)

    def marginal(self, features: Any) -> Self:
        r"""The density of the features S = ``features``, in that order: p_S(x_S) = ∫ p dρ_R.

        Of a square by volume it is k_Sᵀ(B ∘ W_R)k_S, for any separable kernel; with a metric, W_R
        is W/W_S, and the metric of the result is the block of these features. On a
        :class:`~ksos.measures.Discrete` measure, atoms that agree in S become one, with any kernel.
        The result carries exactly their masses. Its measure is the marginal of ρ if ρ is a product
        of measures (a tensor quadrature rule) or the kernel is not separable, and otherwise has the
        same atoms with other weights.

        Parameters
        ----------
        features : name, number, or list of these
            Numbers count from 0; negative ones raise.

        Returns
        -------
        SoSDensity
            Of these features.

        >>> from ksos.kernels import Gaussian
        >>> p = SoSDensity(Gaussian(1.0), [[0.0, 1.0], [1.0, 0.0]], [[1.0], [1.0]], normalize=True)
        >>> bool(abs(p.marginal([1]).mean()[0] - p.mean()[1]) < 1e-12)
        True
        """
        keep = as_features(features, self.n_features, "features", self.feature_names)
        return self._of(condition.marginal(self.terms.on_host, keep), keep)

    def conditional(self, conditions: Any) -> Self:
        r"""The density of the other features given values or intervals of some.

        Given x_S = v a square is ∝ k_Rᵀ ΔBΔ k_R with Δ = diag(k_S(v, x̃_i)); given that x_S lies in
        an interval I, whose ends may be infinite, ∝ k_Rᵀ(B ∘ W_I)k_R with W_I = ∫_I k_S k_Sᵀ dρ.
        With a metric, the support points move with v, as the means of conditional normal
        distributions do, and a condition on an interval gives a mixture over the nodes of a rule on
        it, good to about 1e-9. Values may be far away, as long as the log-density there is finite;
        a warning says how far. On a :class:`~ksos.measures.Discrete` measure they must be those of
        an atom, unless ρ is a product of measures.

        Parameters
        ----------
        conditions : dict
            {feature: value or (low, high)}.

        Returns
        -------
        SoSDensity
            Of the other features.

        >>> from ksos.kernels import Gaussian
        >>> p = SoSDensity(Gaussian(1.0), [[0.0, 0.0], [9.0, 9.0]], [[1.0], [1.0]], normalize=True)
        >>> p.conditional({0: 9.0}).mean().round(9)
        array([9.])
        >>> p.conditional({0: (5.0, np.inf)}).mean().round(9)
        array([9.])
        """
        values, sides = as_conditions(conditions, self.n_features, self.feature_names)
        terms = self._given_values(values) if values else self.terms.on_host
        left = [k for k in range(self.n_features) if k not in values]
        for feature, side in sides.items():
            try:
                terms = condition.in_interval(terms, left.index(feature), side)
            except NoMass:
                raise self._no_density(self._interval_words({feature: side})) from None
            left.remove(feature)
        return self._of(terms, left)

    def _given_values(self, values: Mapping[int, float]) -> Terms:
        """The terms given values, with a warning if these are far outside of the data."""
        given, at = list(values), np.array(list(values.values()))
        words = self._value_words(given, at)
        try:
            found = condition.at_values(self.terms.on_host, given, at)
        except NoMass as error:
            if error.nearest is None:
                inside = self.measure.restrict(given).contains(at[None, :])[0]
                outside = "" if inside else f", outside of {self.measure!r}"
                raise self._no_density(f"at {words}{outside}") from None
            nearest = self._value_words(given, error.nearest)
            raise ValueError(
                f"no atom of {self.measure!r} has {words}, and the measure is not a product:"
                f" condition on the value of an atom; the nearest is {nearest}"
            ) from None
        if found.n_features:
            condition.warn_if_far(self.terms.on_host, found, given, at, words)
        return found

    def _no_density(self, where: str) -> ValueError:
        return ValueError(
            f"the density vanishes {where}, at least to rounding: there is no conditional density"
        )

    def _value_words(self, features: Sequence[int], values: np.ndarray) -> str:
        names = self.feature_names
        listed = features if names is None else [names[k] for k in features]
        return str(dict(zip(listed, np.asarray(values).tolist(), strict=True)))

    def _interval_words(self, sides: Mapping[int, tuple[float, float]]) -> str:
        names = self.feature_names
        each = [f"{said(k, names)} lies between {a:g} and {b:g}" for k, (a, b) in sides.items()]
        return "where " + ", ".join(each)

    def conditional_logpdf(self, X: Any, given: Any) -> np.ndarray:
        """log p(x_R | x_S) at every row x of ``X``: one condition per row, millions of rows.

        On a :class:`~ksos.measures.Discrete` measure it is relative to ρ given x_S, a probability
        measure.

        Parameters
        ----------
        X : array (n, d)
            Rows of all features.
        given : list of features
            S.

        Returns
        -------
        array (n,)

        >>> from ksos.kernels import Gaussian
        >>> p = SoSDensity(Gaussian(1.0), [[0.0, 0.0], [9.0, 9.0]], [[1.0], [1.0]], normalize=True)
        >>> p.conditional_logpdf([[9.0, 9.0], [0.0, 1.0]], given=[0]).round(6)
        array([-0.225791, -2.225791])
        """
        rows = self._rows(X)
        features = as_features(given, self.n_features, "given", self.feature_names)
        if len(features) == self.n_features:
            raise ValueError(
                f"given names all {self.n_features} features: none is left to have a density; use"
                " logpdf for the density of a row"
            )
        found = condition.conditional_logpdf(self.terms.on_host, rows, features)
        if (impossible := np.flatnonzero(np.isnan(found))).size:
            row, names = int(impossible[0]), self.feature_names
            words = features if names is None else quoted([names[k] for k in features])
            raise ValueError(
                f"the density of the features {words} vanishes in {impossible.size} of"
                f" {rows.shape[0]} rows of X, first in row {row} at"
                f" {self._value_words(features, rows[row, features])}: there is no conditional"
                " density; drop the rows where p.marginal(given).logpdf(X[:, given]) is -inf"
            )
        return self._back(found)

    def times_gaussian(self, mean: Any, scale: Any) -> Self:
        r"""p(x)·exp(−½(x − mean)ᵀC⁻¹(x − mean)), scaled to mass one: Bayes' rule for a Gaussian
        measurement of the features.

        For the Gaussian kernel on any measure, and for any kernel on a
        :class:`~ksos.measures.Discrete` one, where the Gaussian goes into the weights.

        Parameters
        ----------
        mean : float, array (d,), or dict {feature: number}
            What was measured.
        scale : float, array (d,), matrix (d, d), or dict {feature: number}
            Standard deviations of the measurement, or its covariance C. An infinite one says
            nothing about its feature, nor does a mapping that lacks it.

        Returns
        -------
        SoSDensity

        >>> from ksos.kernels import Gaussian
        >>> p = SoSDensity(Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)  # N(0, 1)
        >>> q = p.times_gaussian(1.0, 1.0)
        >>> q.mean().round(12), q.cov().round(12)
        (array([0.5]), array([[0.5]]))
        """
        d, names = self.n_features, self.feature_names
        center = as_vector(per_feature(mean, d, names, "mean", 0.0), "mean", length=d)
        scale = per_feature(scale, d, names, "scale", np.inf)
        if (covariance := as_metric(scale, "scale")) is None:
            root = np.diag(1.0 / as_scales(scale, d))
        elif covariance.shape[0] != d:
            raise ValueError(
                f"scale must have, as a covariance matrix, shape {(d, d)}; got {covariance.shape}"
            )
        else:
            root = np.linalg.inv(np.linalg.cholesky(covariance))
        try:
            return self._of(transform.times_gaussian(self.terms.on_host, center, root))
        except NoMass:
            raise ValueError(
                f"the density vanishes where the Gaussian with mean {center.tolist()} does not"
            ) from None

    def affine(self, scale: Any = 1.0, shift: Any = 0.0) -> Self:
        """The density of scale·x + shift.

        Features keep their names unless a matrix mixes them. The measure moves along: sides of a
        box, mean and scale of a normal measure, the points of a discrete one (with their weights).

        Parameters
        ----------
        scale : float, array (d,), matrix (d, d), or dict {feature: number}
            Negative numbers are allowed. A matrix A takes a Gaussian kernel, of which the metric
            becomes ASAᵀ, and any measure but a box.
        shift : float, array (d,), or dict {feature: number}
            What is added.

        Returns
        -------
        SoSDensity

        >>> from ksos.kernels import Gaussian
        >>> SoSDensity(Gaussian(1.0), [[1.0]], [[1.0]], normalize=True).affine(-2.0, 5.0)
        SoSDensity(d=1, m=1, rank=1, kernel=Gaussian(sigma=2.0), measure=Lebesgue())
        >>> p = SoSDensity(Gaussian(2.0), [[0.0, 0.0]], [[1.0]], normalize=True)
        >>> p.affine([[1.0, 0.0], [0.6, 0.8]]).cov().round(12)
        array([[1. , 0.6],
               [0.6, 1. ]])
        """
        d, names = self.n_features, self.feature_names
        factor = per_feature(scale, d, names, "scale", 1.0)
        b = as_vector(per_feature(shift, d, names, "shift", 0.0), "shift", length=d)
        mixes = np.ndim(factor) == 2
        if mixes:
            A = as_invertible(factor, "scale", d)
        else:
            each = as_vector(factor, "scale", length=d)
            if np.any(each == 0.0):
                k = int(np.argmax(each == 0.0))
                raise ValueError(
                    f"scale must not be zero: that of {said(k, names)} is, and would leave no"
                    " density; use p.marginal(…) without the feature"
                )
            A = np.diag(each)
        return self._of(transform.affine(self.terms.on_host, A, b), named=not mixes)

    def compress(
        self,
        rank: int | None = None,
        m: int | None = None,
        *,
        kernel: Kernel | None = None,
        landmarks: Any = None,
    ) -> Compression:
        """A smaller density, and its MMD to this one, as a named pair ``(density, mmd)``.

        Parameters
        ----------
        rank : int, optional
            At most this many columns in each term: those with the largest masses.
        m : int, optional
            At most this many support points in each term, chosen among the present ones by
            orthogonal matching pursuit. (The density over them that is closest in MMD takes a
            solver: ``ksos.minimize`` of ``SquaredMMD(p)`` over their :class:`~ksos.SoSSpace`.)
        kernel : Kernel, optional
            In which MMD is measured; default: the density's own.
        landmarks : array (ℓ, d), optional
            Report the MMD projected on these: for a density whose exact MMD has no closed form or
            takes too long (see :func:`ksos.mmd`).

        Returns
        -------
        Compression
            The named pair ``(density, mmd)``.

        >>> from ksos.kernels import Gaussian
        >>> F = [[1.0, 0.0], [1.0, 0.1], [1.0, 0.0]]
        >>> p = SoSDensity(Gaussian(1.0), [[0.0], [0.5], [1.0]], F, normalize=True)
        >>> smaller, distance = p.compress(rank=1)
        >>> smaller.rank, distance < 0.01
        (1, True)
        """
        rank, m = as_sizes(rank, m)
        host = self.terms.on_host
        terms = [(w, compressed(term, rank, m)) for w, term in host.weighted]
        if all(a is b for (_, a), (_, b) in zip(terms, host.weighted, strict=True)):
            return Compression(self, 0.0)
        small = self._of(Terms(terms, self.measure))
        return Compression(small, small.mmd(self, kernel=kernel, landmarks=landmarks))

    def probability(self, low: Any = -np.inf, high: Any = np.inf, given: Any = None) -> Any:
        """P(low ≤ x ≤ high), or P(low ≤ x ≤ high | given); bounds may be infinite.

        It is exact, but for a metric where sides of more than three correlated features are finite:
        there it is an estimate by quasi-Monte Carlo, good to about 1e-4. That of one box is a float
        with the estimate of its error as ``.error``; so is a closed form (``.method`` says which)
        of which rounding leaves fewer digits than 1e-11.

        Parameters
        ----------
        low, high : float, array of d floats, array (n, d), or dict {feature: bound}
            The sides of a box, one number standing for all features; with rows, of n boxes, and the
            answer has shape (n,). Omitted features are unrestricted.
        given : dict, optional
            {feature: value or (low, high)}. The probability is that of the box among the x for
            which this holds.

        Returns
        -------
        Estimate or array (n,)

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[0.0, 0.0]], [[1.0]], normalize=True)
        >>> round(p.probability([-1.0, -np.inf], [1.0, np.inf]), 6)
        0.682689
        >>> round(p.probability(0.0, np.inf, given={0: 1.0, 1: (-1.0, 3.0)}), 6)
        0.593635
        """
        d, names, is_discrete = self.n_features, self.feature_names, self.measure.atoms is not None
        low, high, many = as_box(low, high, d, closed=is_discrete, names=names)
        if given is None:
            found, errors, method = box_masses(self.terms.on_host, low, high)
        else:
            found, errors, method = self._masses_given(
                low, high, *as_conditions(given, d, names, leave_none=True)
            )
        if many:
            return self._back(found)
        exact = errors[0] == 0.0
        return float(found[0]) if exact else Estimate(float(found[0]), float(errors[0]), method)

    def _masses_given(
        self,
        low: np.ndarray,
        high: np.ndarray,
        values: dict[int, float],
        sides: dict[int, tuple[float, float]],
    ) -> Masses:
        """P(box | values and intervals) of every box."""
        left = [k for k in range(self.n_features) if k not in values]
        hit = np.ones(low.shape[0], dtype=bool)
        for k, value in values.items():
            hit &= (low[:, k] <= value) & (value <= high[:, k])
        nothing = np.zeros(low.shape[0])
        if not left:
            at = np.array([[values[k] for k in range(self.n_features)]])
            if np.isneginf(self.terms.on_host.log_by_volume(at)[0]):
                words = self._value_words(list(values), np.array(list(values.values())))
                raise ValueError(
                    f"the density vanishes at {words}: there is no probability given that"
                )
            return Masses(hit.astype(float), nothing, "closed form")
        terms = self._given_values(values) if values else self.terms.on_host
        box = low[hit][:, left], high[hit][:, left]
        within = {left.index(k): side for k, side in sides.items()}
        try:
            found = masses_within(terms, *box, within) if sides else box_masses(terms, *box)
        except NoMass:
            raise ValueError(
                f"the density vanishes {self._interval_words(sides)}, at least to rounding: there"
                " is no probability given that"
            ) from None
        masses, errors = nothing.copy(), nothing.copy()
        masses[hit], errors[hit] = found.values, found.errors
        return Masses(masses, errors, found.method)

    def cdf(self, X: Any) -> np.ndarray:
        """P(x_k ≤ X_ik for all k), shape (n,); as good as :meth:`probability`.

        A density of one feature takes one number as well, and ±inf.

        Parameters
        ----------
        X : array (n, d)
            Rows of all features.

        Returns
        -------
        array (n,) or float
        """
        host = self.terms.on_host
        return self._at(X, lambda rows: self._back(cumulative(host, to_numpy(rows))), 0.0, 1.0)

    def ppf(self, q: Any) -> Any:
        """The quantiles of a density of one feature: the x with cdf(x) = q.

        At 0 and 1 it is the end of the measure (±inf, or the boundary of a box); on a discrete
        measure, the first node whose distribution function reaches q.

        Parameters
        ----------
        q : float or array
            Levels from 0 to 1. The answer has the same shape.

        Returns
        -------
        float or array

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)
        >>> p.ppf([0.0, 0.25, 0.975]).round(6)
        array([     -inf, -0.67449 ,  1.959964])
        """
        self._require_one_feature("quantiles are", "ppf(q)")
        levels = as_levels(q, "q")
        found = quantiles(self.terms.on_host, np.atleast_1d(levels))
        return self._back(found) if levels.ndim else float(found[0])

    def mode(self, *, all_local: bool = False, n_starts: int = 64, as_frame: bool = False) -> Any:
        """The x with the largest pdf (relative to the measure), shape (d,).

        Parameters
        ----------
        all_local : bool
            Return every local maximum that a climb reaches, the largest first, shape (k, d).
        n_starts : int
            Climbs start from this many of the best support points and, in one and two features,
            maxima of a grid. On a discrete measure the mode is the best node.
        as_frame : bool
            Return a pandas Series or data frame.

        Returns
        -------
        array (d,), or (k, d) with ``all_local``

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(1.0), [[0.0], [4.0]], [[1.0], [2.0]], normalize=True)
        >>> p.mode().round(6), p.mode(all_local=True).shape
        (array([4.]), (2, 1))
        """
        n = as_count(n_starts, "n_starts")
        found = modes(self.terms.on_host, n, every=bool(all_local))
        if as_frame:
            return frame(found, *self._label) if all_local else series(found[0], *self._label)
        return self._back(found if all_local else found[0])

    def grad_logpdf(self, X: Any) -> np.ndarray:
        """∇ log p at the rows of ``X``, shape (n, d).

        It is 0 where the density vanishes, and at the tip of a Laplace kernel the mean of the
        slopes on both sides.

        Parameters
        ----------
        X : array (n, d)
            Rows of all features.

        Returns
        -------
        array (n, d)
        """
        return self._back(log_and_gradient(self.terms.on_host, self._rows(X))[1])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the density to a file that :func:`ksos.load` reads.

        The old file or the new one is there, whole, at any moment.

        Parameters
        ----------
        path : str or path
            The file.

        Returns
        -------
        None
        """
        from ksos.density.io import save  # io imports this class

        save(self, path)

    def __repr__(self) -> str:
        d = f"d={self.n_features}{shown_names(self.feature_names)}"
        (_, term), *more = self.terms.weighted
        if more or not term.is_whole:
            n = len(more) + 1
            return f"SoSDensity({d}, {n} term{'s' * (n > 1)}, measure={self.measure!r})"
        one = term.joint
        constant = "" if one.unit_constant is None else ", constant"
        return (
            f"SoSDensity({d}, m={one.support_points.shape[0]}{constant}, rank={one.rank},"
            f" kernel={one.kernel!r}, measure={self.measure!r})"
        )


def from_terms(terms: Terms | Square, names: tuple[str, ...] | None = None) -> SoSDensity:
    """The density of these terms, or of one square of mass one, as they are."""
    if isinstance(terms, Square):
        terms = Terms([(1.0, as_term(terms))], terms.measure)
    out = SoSDensity.__new__(SoSDensity)
    out.terms, out.feature_names = terms, names
    return out


def square_of(p: SoSDensity) -> Square:
    """The square of a density of one term over all features."""
    (_, term), *more = p.terms.weighted
    if more or not term.is_whole:
        raise AttributeError(f"{p!r} has no single factor: p.components are its parts")
    return term.joint
