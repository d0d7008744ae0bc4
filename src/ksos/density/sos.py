"""SoSDensity: a probability density that is a kernel sum of squares, kept as a factor and evaluated
through it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np

from ksos.density._assemble import log_squares, split_columns, unit_rows
from ksos.density._quiet import without_underflow
from ksos.density.compress import Compression, compress
from ksos.density.conditional import conditional, conditional_logpdf, marginal
from ksos.density.far import warn_if_far
from ksos.density.line import line_distribution
from ksos.density.moments import mean_and_covariance
from ksos.density.queries import Queries
from ksos.density.sampling import (
    Envelope,
    Squares,
    draw,
    draw_by_inversion,
    envelope,
    squares_of,
)
from ksos.density.standard import Standard, feature_scales
from ksos.density.transform import affine, times_gaussian
from ksos.ground.arrays import (
    Array,
    is_numpy,
    like,
    namespace,
    on_accelerator,
    on_host,
    quiet,
    to_device,
    to_numpy,
    zeros,
)
from ksos.ground.memory import CACHE_ELEMENTS, row_blocks
from ksos.ground.names import frame, per_feature, series, shown_names, square
from ksos.ground.progress import shown
from ksos.ground.validation import (
    as_conditions,
    as_count,
    as_features,
    as_points,
    as_vector,
    instead,
)
from ksos.integrals import Integrals, closed_form
from ksos.integrals.exact_rule import basis_at, exact_rule
from ksos.kernels import Kernel
from ksos.measures import Lebesgue, Measure
from ksos.quadrature import PanelDistribution

if TYPE_CHECKING:
    from ksos.density.mixture import SoSMixture

__all__ = ["SoSDensity"]

_BLOCK_ELEMENTS = 1 << 18
_DEVICE_ELEMENTS = 1 << 26  # a GPU wants few large operations
_MASS_ENTRIES = 1 << 20
_MASS_BLOCK = 1 << 9
# below it, kernel values have begun to underflow and the logarithm is recomputed with the row's
# peak taken out
_UNDERFLOW = 1e-250
_MASS_TOLERANCE = 1e-6


@without_underflow
class SoSDensity(Queries):
    r"""p_B(x) = Σ_ij B_ij k(x, x̃_i) k(x, x̃_j) = ‖Fᵀ k(x)‖² with B = FFᵀ: a density with respect
    to ``measure``.

    Evaluation goes through the factor F, never through B: it cannot be negative. Inside, F is kept
    in natural units, F = F̃·e^{−u/2} with u = log max_i ∫k(x,x̃_i)²dρ, because u itself leaves the
    range of floats in hundreds of dimensions.

    Parameters
    ----------
    kernel : Kernel
    support_points : array (m, d)
        The x̃_i.
    factor : array (m, k)
        F.
    measure : Measure, optional
        ρ; default Lebesgue on R^d. ``pdf`` is the density *with respect to it*.
    constant : array (k,), optional
        c of p(x) = ‖c + Fᵀk(x)‖², for a measure of finite mass: the row of the constant function,
        which corrects nothing.
    normalize : bool
        Scale F (and c) to mass one. Otherwise a mass that differs from 1 by more than 1e-6 is an
        error.

    >>> from ksos.kernels import Gaussian
    >>> p = SoSDensity(Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)  # exp(−x²/2)/√(2π)
    >>> p.pdf([[0.0], [1.0]]).round(6)
    array([0.398942, 0.241971])
    >>> p
    SoSDensity(d=1, m=1, rank=1, kernel=Gaussian(sigma=2.0), measure=Lebesgue())
    """

    kernel: Kernel
    measure: Measure
    support_points: np.ndarray
    unit_factor: np.ndarray
    unit_constant: np.ndarray | None
    log_unit: float

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
                " normalise"
            )
        largest = float(xp.max(xp.abs(F)))
        if constant is not None:
            constant = like(as_vector(constant, "constant", length=F.shape[1]), points)
            if not math.isfinite(log_mass := measure.log_mass(points.shape[1])):
                raise ValueError(
                    f"the constant function has no finite mass on {measure!r}; use a probability"
                    " measure such as Normal"
                )
            log_unit, largest = (
                max(log_unit, log_mass),
                max(largest, float(xp.max(xp.abs(constant)))),
            )
            constant = constant / largest if largest > 0.0 else constant
        unit = F / largest if largest > 0.0 else F
        self._set(kernel, points, unit, log_unit, measure, constant)
        log_mass = np.log(max(self.mass(), 1e-300)) + 2.0 * np.log(max(largest, 1e-300)) + log_unit
        if not normalize and abs(log_mass) > _MASS_TOLERANCE:
            raise ValueError(
                f"the density has mass {np.exp(log_mass):.9g}, not 1; pass normalize=True to"
                " scale it"
            )
        if not self.mass() > 0.0:
            raise ValueError("the factor gives a density without mass: it is zero")
        root = math.sqrt(self.mass())
        self._set(
            kernel,
            points,
            unit / root,
            log_unit,
            measure,
            None if constant is None else constant / root,
        )

    def _set(
        self,
        kernel: Kernel,
        points: np.ndarray,
        unit_factor: np.ndarray,
        log_unit: float,
        measure: Measure,
        constant: np.ndarray | None,
    ) -> None:
        self.kernel, self.measure = kernel, measure
        # one memory layout: matrix products round differently in another, and a loaded density must
        # give the same bits
        whole = np.ascontiguousarray if is_numpy(points) else namespace(points).asarray
        self.support_points, self.unit_factor, self.log_unit = (
            whole(points),
            whole(unit_factor),
            log_unit,
        )
        self.unit_constant = None if constant is None else whole(constant)

    @classmethod
    def from_units(
        cls,
        kernel: Kernel,
        support_points: np.ndarray,
        unit_factor: np.ndarray,
        log_unit: float,
        measure: Measure,
        unit_constant: np.ndarray | None = None,
    ) -> Self:
        """The density with F = unit_factor·exp(−log_unit/2), and c alike, as they are: nothing is
        checked or scaled.
        """
        out = cls.__new__(cls)
        out._set(kernel, support_points, unit_factor, log_unit, measure, unit_constant)
        return out

    def scaled_to_one(self, mass: float | None = None) -> Self:
        """The same density with mass one, that of this one being ``mass`` if it is known."""
        root, c = math.sqrt(self.mass() if mass is None else mass), self.unit_constant
        unit = None if c is None else c / root
        scaled = self.from_units(
            self.kernel,
            self.support_points,
            self.unit_factor / root,
            self.log_unit,
            self.measure,
            unit,
        )
        return scaled._with_names_of(self)

    @property
    def factor(self) -> np.ndarray:
        """F with B = FFᵀ, shape (m, rank)."""
        return self.unit_factor * np.exp(-0.5 * self.log_unit)

    @property
    def constant(self) -> np.ndarray | None:
        """c, the row of the constant function, shape (rank,); None if the density has none."""
        return (
            None
            if self.unit_constant is None
            else self.unit_constant * np.exp(-0.5 * self.log_unit)
        )

    @property
    def n_features(self) -> int:
        """The dimension d."""
        return int(self.support_points.shape[1])

    @property
    def rank(self) -> int:
        """The number of squares."""
        return int(self.unit_factor.shape[1])

    @property
    def integrals(self) -> Integrals:
        """The closed-form integrals of the kernel against the measure."""
        return closed_form(self.kernel, self.measure, self.n_features)

    @np.errstate(under="ignore")
    def mass(self) -> float:
        """∫ p dρ = tr(BW), streamed over square blocks of W: the memory it takes depends on neither
        m, d nor the rank.

        Where few nodes give the same integral to rounding, ∫ p dρ is a sum over them instead, in
        which nothing cancels.
        """
        X, F, integrals, total = self.support_points, self.unit_factor, self.integrals, 0.0
        xp = namespace(X)
        if (
            (atoms := self.measure.atoms) is not None
        ):  # a sum over the nodes: as many steps as nodes, not times support points again
            self.measure.check_features(self.n_features)
            return float(
                xp.exp(xp.log(like(atoms.weights, X)) - self.log_unit)
                @ self._squares(like(atoms.points, X))
            )
        plain = X.shape[1] == 1 and self.unit_constant is None
        if (
            plain
            and (rule := exact_rule(integrals, to_numpy(X), [], _MASS_ENTRIES / X.shape[0]))
            is not None
        ):
            return float(xp.sum(basis_at(rule, self.kernel, X, F, self.log_unit) ** 2))
        blocks = list(
            row_blocks(X.shape[0], max(_MASS_BLOCK, *X.shape[1:], *F.shape[1:]), _BLOCK_ELEMENTS)
        )
        for i, rows in enumerate(blocks):
            for columns in blocks[: i + 1]:
                W = xp.exp(integrals.log_gram(X[rows, :], X[columns, :]) - self.log_unit)
                part = float(xp.sum(F[rows, :] * (W @ F[columns, :])))
                total += part if columns == rows else 2.0 * part
        if (c := self.unit_constant) is not None:
            mean = xp.exp(integrals.log_mean(X) - self.log_unit)
            total += float(xp.sum(c * c)) * math.exp(
                self.measure.log_mass(self.n_features) - self.log_unit
            ) + 2.0 * float(mean @ (F @ c))
        return total

    @np.errstate(under="ignore")
    def logpdf(self, X: Any) -> Array:
        """log p(X_i), shape (n,); −inf where the density vanishes, never NaN."""
        X = like(self._points(X), self.support_points)
        xp, out = namespace(X), self._squares(X)
        weak = out < _UNDERFLOW
        with quiet():
            out = xp.log(out)
        if bool(xp.any(weak)):
            rows = xp.nonzero(weak)[0]
            out[weak] = self._log_squares(xp.take(X, rows, axis=0))
        return xp.where(self.measure.contains(X), out, -xp.inf) - self.log_unit

    def pdf(self, X: Any) -> Array:
        """p(X_i) = ‖Fᵀ k(X_i)‖² ≥ 0, shape (n,)."""
        X = like(self._points(X), self.support_points)
        xp = namespace(X)
        with np.errstate(over="ignore", under="ignore"):
            if abs(self.log_unit) > 600.0:  # exp would leave the range although p itself may not
                return xp.exp(self.unnamed.logpdf(X))
            out = self._squares(X) * math.exp(-self.log_unit)
        return xp.where(self.measure.contains(X), out, 0.0)

    @np.errstate(under="ignore")
    def _squares(self, X: Array) -> Array:
        """‖F̃ᵀ k(x)‖² in natural units, in blocks of rows."""
        xp, out, F, bumps = namespace(X), zeros((X.shape[0],), X), self.unit_factor, None
        if is_numpy(X) and F.shape[1] > F.shape[0] and self.unit_constant is None:
            F, bumps = split_columns(F)
        at = self.kernel.against(self.support_points)
        for rows in row_blocks(
            X.shape[0],
            max(self.unit_factor.shape),
            CACHE_ELEMENTS if is_numpy(X) else _DEVICE_ELEMENTS,
        ):
            k = at(X[rows, :])
            values = k @ F
            if self.unit_constant is not None:
                values += self.unit_constant
            out[rows] = xp.vecdot(values, values)
            if bumps is not None:
                out[rows] += (k * k) @ bumps
        return out

    @np.errstate(under="ignore")
    def _log_squares(self, X: Array) -> Array:
        """log ‖F̃ᵀ k(x)‖², also where kernel values underflow."""
        out = zeros((X.shape[0],), X)
        xp, F, c = namespace(X), self.unit_factor, self.unit_constant
        unit, log_lengths = on_host(unit_rows)(
            F if c is None else xp.concat([F, c[None, :]], axis=0)
        )
        for rows in row_blocks(
            X.shape[0], max(F.shape), _BLOCK_ELEMENTS if is_numpy(X) else _DEVICE_ELEMENTS
        ):
            log_k = self.kernel.log(X[rows, :], self.support_points)
            if c is not None:  # log 1 = 0
                log_k = xp.concat([log_k, xp.zeros_like(log_k[:, :1])], axis=1)
            out[rows] = log_squares(log_k + log_lengths, unit)
        return out

    def on_host(self) -> SoSDensity:
        """The same density in NumPy arrays; the density itself if it is made of them."""
        return self if is_numpy(self.support_points) else self._moved(to_numpy)

    def to(self, device: Any) -> SoSDensity:
        """The same density in torch tensors on a device such as ``"cuda"``; if there is no such
        device, the error says why.
        """
        return self.on_host()._moved(lambda part: to_device(part, device))

    def on_device_of(self, other: Queries) -> SoSDensity:
        """The same density in arrays of the backend and on the device of ``other``'s."""
        return self._moved(lambda part: like(part, other.support_points))

    def _moved(self, move: Callable[[Any], Any]) -> SoSDensity:
        c = None if self.unit_constant is None else move(self.unit_constant)
        moved = self.from_units(
            self.kernel,
            move(self.support_points),
            move(self.unit_factor),
            self.log_unit,
            self.measure,
            c,
        )
        return moved._with_names_of(self)

    def mean(self, *, as_frame: bool = False) -> Any:
        """E[x], shape (d,); with ``as_frame`` a pandas Series."""
        found = (
            self.as_mixture().mean()
            if self.plain is None
            else mean_and_covariance(self.unnamed.on_host())[0]
        )
        return series(found, self.feature_names) if as_frame else like(found, self.support_points)

    def cov(self, *, as_frame: bool = False) -> Any:
        """The covariance matrix of x, shape (d, d); with ``as_frame`` a pandas data frame."""
        found = (
            self.as_mixture().cov()
            if self.plain is None
            else mean_and_covariance(self.unnamed.on_host())[1]
        )
        return square(found, self.feature_names) if as_frame else like(found, self.support_points)

    @instead(seed="rng", random_state="rng")
    def rvs(
        self, size: int = 1, rng: Any = None, *, method: str = "auto", as_frame: bool = False
    ) -> Any:
        """``size`` independent samples, shape (size, d); ``rng`` is a seed or a
        :class:`numpy.random.Generator`.

        ``method="inversion"`` inverts the distribution function of each feature given the earlier
        ones, to 1e-9 and better; ``"rejection"`` thins a mixture that dominates the density;
        ``"squares"``, for smooth kernels, draws one of the squares, then its features in turn, and
        the first call prepares those that follow. All are exact; ``"auto"`` takes the one predicted
        to be fastest. ``"rejection"`` raises if it would take more than ten seconds longer than
        inversion. With ``as_frame``, a pandas data frame.
        """
        if self.plain is None:
            samples = self.unnamed.as_mixture().rvs(size, rng)
        elif (
            on_accelerator(self.support_points)
            and method in ("auto", "inversion")
            and self.measure.atoms is None
        ):
            samples = draw_by_inversion(
                self, as_count(size, "size", minimum=0), np.random.default_rng(rng)
            )
        else:
            with shown(f"{size} samples"):
                samples = draw(
                    self.unnamed.on_host(),
                    as_count(size, "size", minimum=0),
                    np.random.default_rng(rng),
                    method,
                )
        return (
            frame(samples, self.feature_names) if as_frame else like(samples, self.support_points)
        )

    @cached_property
    def unit_columns(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(M, bumps, log_lengths) with FFᵀ = D(MMᵀ + diag(bumps))D, D = diag(e^{log_lengths}): the
        rows of length one, columns split.
        """
        rows, log_lengths = unit_rows(self.unit_factor)
        return *split_columns(rows), log_lengths

    @cached_property
    def squares(self) -> Squares | None:
        """The sampler that draws square by square, made when it is first needed; None if the
        density has none.
        """
        return squares_of(self.unnamed.on_host())

    @cached_property
    def envelope(self) -> Envelope | None:
        """What rejection draws from, made when it is first needed; None if the density has none."""
        return envelope(self.unnamed.on_host())

    @cached_property
    def line(self) -> tuple[Standard, PanelDistribution]:
        """Standard coordinates of a density of one feature, and its distribution there, made when
        it is first needed.
        """
        return line_distribution(self)

    def __getstate__(self) -> dict[str, Any]:
        state = dict(cast("dict[str, Any]", super().__getstate__()))
        for made in ("squares", "envelope", "unit_columns", "line"):  # they can be made again
            state.pop(made, None)
        return state

    @property
    def bandwidths(self) -> np.ndarray:
        """Per feature the length on which the density varies, shape (d,)."""
        return feature_scales(self.kernel, self.n_features)

    @property
    def plain(self) -> SoSDensity | None:
        ties = self.measure.by_components or (
            self.kernel.full and self.measure.normals(self.n_features) is not None
        )
        return None if ties or self.unit_constant is not None else self.on_host()

    def as_mixture(self) -> SoSMixture:
        from ksos.density.mixture import SoSMixture  # which is built on densities

        return SoSMixture([self.on_host()], measure=self.measure)  # with the same names

    @property
    def components(self) -> list[tuple[float, SoSDensity | SoSMixture]]:
        """(weight, part) of the mixture that this density is: itself, or one part per normal law of
        a reference measure.
        """
        return [(1.0, self)] if self.plain is not None else self.as_mixture().components

    def by_volume(self) -> SoSDensity | SoSMixture:
        """The same law as a density with respect to Lebesgue measure: p·dρ/dx; itself on volume,
        boxes and discrete measures.

        Relative to one normal law it is again a sum of squares over one kernel; with a constant or
        several normal laws, a mixture.
        """
        if self.measure.normals(self.n_features) is None:
            return self
        whole = self.as_mixture().by_volume()
        (_, part), *more = whole.parts
        return (
            whole
            if more or self.unit_constant is not None
            else part.density.on_device_of(self)._with_names_of(self)
        )

    def marginal(self, features: Any) -> Self:
        r"""The density of the features S = ``features``, in that order: p_S(x_S) = ∫ p dρ_R =
        k_Sᵀ(B ∘ W_R)k_S, for any separable kernel.

        With a metric, W_R is W/W_S, and the metric of the result is the block of S of these
        features.

        Features are given by name, or numbered from 0; negative numbers are refused. On a
        :class:`~ksos.measures.Discrete` measure, atoms that agree in S become one, with any kernel.
        The result carries exactly their masses. Its measure is the marginal of ρ if ρ is a product
        of measures (a tensor quadrature rule) or the kernel is not separable, and otherwise has the
        same atoms with other weights.

        >>> from ksos.kernels import Gaussian
        >>> p = SoSDensity(Gaussian(1.0), [[0.0, 1.0], [1.0, 0.0]], [[1.0], [1.0]], normalize=True)
        >>> bool(abs(p.marginal([1]).mean()[0] - p.mean()[1]) < 1e-12)
        True
        """
        keep = as_features(features, self.n_features, "features", self.feature_names)
        found = (
            self.as_mixture().marginal(keep)
            if self.plain is None
            else marginal(self.unnamed.on_host(), keep)
        )
        return cast("Self", found.on_device_of(self)._with_names_of(self, keep))

    def conditional(self, conditions: Any) -> Self:
        r"""The density of the other features given ``conditions`` = {feature: value or (low,
        high)}.

        Given x_S = v it is ∝ k_Rᵀ ΔBΔ k_R with Δ = diag(k_S(v, x̃_i)); given that x_S lies in an
        interval I, whose ends may be infinite, ∝ k_Rᵀ(B ∘ W_I)k_R with W_I = ∫_I k_S k_Sᵀ dρ, again
        a sum of squares. With a metric, or over normal laws that tie the features, a condition on
        an interval gives a mixture of the laws at the nodes of a rule on it, good to about 1e-9.

        With a metric, the support points move with v, as the means of conditional normal laws do,
        and the metric is (P_RR)⁻¹, P = S⁻¹. Values may be far away, as long as the log-density
        there is finite; a warning says how far. On a :class:`~ksos.measures.Discrete` measure they
        must be those of an atom, unless ρ is a product of measures.

        >>> from ksos.kernels import Gaussian
        >>> p = SoSDensity(Gaussian(1.0), [[0.0, 0.0], [9.0, 9.0]], [[1.0], [1.0]], normalize=True)
        >>> p.conditional({0: 9.0}).mean().round(9)
        array([9.])
        >>> p.conditional({0: (5.0, np.inf)}).mean().round(9)
        array([9.])
        """
        if self.plain is None:
            return cast("Self", self.as_mixture().conditional(conditions).on_device_of(self))
        host, (values, sides) = (
            self.unnamed.on_host(),
            as_conditions(conditions, self.n_features, self.feature_names),
        )
        found = conditional(host, (values, sides), self.feature_names)
        if not sides:
            warn_if_far(
                host, found, list(values), np.array(list(values.values())), self.feature_names
            )
        rest = [k for k in range(self.n_features) if k not in values and k not in sides]
        return cast("Self", found.on_device_of(self)._with_names_of(self, rest))

    def conditional_logpdf(self, X: Any, given: Any) -> np.ndarray:
        """log p(x_R | x_S) at every row x of ``X`` (n, d), S = ``given``: one condition per row,
        millions of rows in bounded memory.

        On a :class:`~ksos.measures.Discrete` measure it is relative to ρ given x_S, a probability
        measure.

        >>> from ksos.kernels import Gaussian
        >>> p = SoSDensity(Gaussian(1.0), [[0.0, 0.0], [9.0, 9.0]], [[1.0], [1.0]], normalize=True)
        >>> p.conditional_logpdf([[9.0, 9.0], [0.0, 1.0]], given=[0]).round(6)
        array([-0.225791, -2.225791])
        """
        X, features = (
            self._rows(X),
            as_features(given, self.n_features, "given", self.feature_names),
        )
        if self.plain is None:
            return like(self.as_mixture().rows_given(X, features), self.support_points)
        return like(
            conditional_logpdf(self.unnamed.on_host(), X, features, self.feature_names),
            self.support_points,
        )

    def times_gaussian(self, mean: Any, scale: Any) -> Self:
        r"""p(x)·Π_k exp(−(x_k − mean_k)²/(2 scale_k²)), scaled to mass one: Bayes' rule for a
        Gaussian measurement of the features.

        ``mean`` and ``scale`` are numbers, one per feature, or mappings {feature: number}; an
        infinite scale says nothing about its feature, nor does a mapping that lacks it. A matrix C
        (d, d) as ``scale`` is the covariance of the measurement, and the factor is exp(−½(x −
        mean)ᵀC⁻¹(x − mean)). For the Gaussian kernel on any measure, and for any kernel on a
        :class:`~ksos.measures.Discrete` one, where the Gaussian goes into the weights.

        >>> from ksos.kernels import Gaussian
        >>> p = SoSDensity(Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)  # N(0, 1), and a measurement 1 ± 1
        >>> p.times_gaussian(1.0, 1.0).mean().round(12), p.times_gaussian(1.0, 1.0).cov().round(12)
        (array([0.5]), array([[0.5]]))
        """
        d, names = self.n_features, self.feature_names
        mean, scale = (
            per_feature(mean, d, names, "mean", 0.0),
            per_feature(scale, d, names, "scale", np.inf),
        )
        found = (
            self.as_mixture().times_gaussian(mean, scale)
            if self.plain is None
            else times_gaussian(self.unnamed.on_host(), mean, scale)
        )
        return cast("Self", found.on_device_of(self)._with_names_of(self))

    def affine(self, scale: Any = 1.0, shift: Any = 0.0) -> Self:
        """The density of scale·x + shift, feature by feature; ``scale`` may be negative, or any
        invertible matrix (d, d).

        A matrix A takes a Gaussian kernel, of which the metric becomes ASAᵀ, and any measure but a
        box. Features keep their names unless a matrix mixes them; mappings {feature: number} change
        these features alone. The measure moves along: sides of a box, mean and scale of a normal
        measure, the points of a discrete one (with their weights).

        >>> from ksos.kernels import Gaussian
        >>> SoSDensity(Gaussian(1.0), [[1.0]], [[1.0]], normalize=True).affine(-2.0, 5.0)
        SoSDensity(d=1, m=1, rank=1, kernel=Gaussian(sigma=2.0), measure=Lebesgue())
        >>> p = SoSDensity(Gaussian(2.0), [[0.0, 0.0]], [[1.0]], normalize=True)  # two standard normal features
        >>> p.affine([[1.0, 0.0], [0.6, 0.8]]).cov().round(12)
        array([[1. , 0.6],
               [0.6, 1. ]])
        """
        d, names = self.n_features, self.feature_names
        scale, shift = (
            per_feature(scale, d, names, "scale", 1.0),
            per_feature(shift, d, names, "shift", 0.0),
        )
        found = (
            self.as_mixture().affine(scale, shift)
            if self.plain is None
            else affine(self.unnamed.on_host(), scale, shift, names)
        )
        return cast(
            "Self",
            found.on_device_of(self).with_feature_names(None if np.ndim(scale) == 2 else names),
        )

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
            At most this many squares: those of p = Σ λ_k ψ_k², ψ_k orthonormal in L²(ρ), with the
            largest masses λ_k.
        m : int, optional
            At most this many support points, chosen among the present ones by orthogonal matching
            pursuit; every column function is projected on them in L²(ρ). (The density over them
            that is closest in MMD takes a solver: ``ksos.minimize`` of ``SquaredMMD(p)`` over their
            :class:`~ksos.SoSSpace`.)
        kernel : Kernel, optional
            In which MMD is measured; default: the density's own.
        landmarks : array (ℓ, d), optional
            Report the MMD projected on these: for a density whose exact MMD has no closed form or
            takes too long (see :func:`ksos.mmd`).

        >>> from ksos.kernels import Gaussian
        >>> p = SoSDensity(Gaussian(1.0), [[0.0], [0.5], [1.0]], [[1.0, 0.0], [1.0, 0.1], [1.0, 0.0]], normalize=True)
        >>> smaller, distance = p.compress(rank=1)
        >>> smaller.rank, distance < 0.01
        (1, True)
        """
        if self.unit_constant is not None:
            return self.as_mixture().compress(rank, m, kernel=kernel, landmarks=landmarks)
        found = compress(self.unnamed.on_host(), rank, m, kernel, landmarks)
        return found._replace(density=found.density.on_device_of(self)._with_names_of(self))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the density to a file that :func:`ksos.load` reads; the old file or the new one is
        there, whole, at any moment.
        """
        from ksos.density.io import save  # io imports this class

        save(self.on_host(), path)

    def __repr__(self) -> str:
        m, more = self.support_points.shape[0], "" if self.unit_constant is None else ", constant"
        d = f"d={self.n_features}{shown_names(self.feature_names)}"
        return (
            f"SoSDensity({d}, m={m}{more}, rank={self.rank}, kernel={self.kernel!r},"
            f" measure={self.measure!r})"
        )
