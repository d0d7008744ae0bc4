"""Mixtures: one sum of squares over one kernel and one measure, an SoSMixture over different ones."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from scipy.linalg import block_diag

from ksos.density._assemble import assemble, listed, named
from ksos.density._quiet import without_underflow
from ksos.density.compress import Compression
from ksos.density.corrected import conditional_normals
from ksos.density.far import warn_if_far
from ksos.density.part import Part, Squares, as_part
from ksos.density.queries import Queries
from ksos.density.sos import SoSDensity
from ksos.density.sums import Sums
from ksos.density.volume import bumps
from ksos.ground.arrays import Array, is_numpy, like, namespace, quiet, to_numpy
from ksos.ground.names import frame, order_of, per_feature, quoted, series, shown_names, square
from ksos.ground.progress import shown
from ksos.ground.validation import (
    as_conditions,
    as_count,
    as_features,
    as_scales,
    as_vector,
    as_weights,
    instead,
)
from ksos.kernels import Gaussian, Kernel
from ksos.measures import GaussianMixture, Lebesgue, Measure

if TYPE_CHECKING:
    from sklearn.mixture import GaussianMixture as FittedMixture

__all__ = ["SoSMixture", "mixture"]

_NEGLIGIBLE, _ROUNDING = 1e-300, 1e-14


def mixture(densities: Any, weights: Any = None) -> SoSDensity | SoSMixture:
    r"""The distribution Σ_a w_a p_a of densities and mixtures of the same features, whatever their
    kernels and measures are.

    Over one kernel and one measure it is one sum of squares, B = Σ_a w_a B_a block by block: an
    :class:`~ksos.SoSDensity`. Otherwise it is an :class:`SoSMixture`, with the same methods.

    Parameters
    ----------
    densities : sequence of SoSDensity and SoSMixture
        A fitted mixture of scikit-learn's becomes one by :meth:`SoSMixture.from_sklearn`.
    weights : array of floats, optional
        Non-negative, scaled to sum one; default: equal ones.

    >>> from ksos.kernels import Gaussian
    >>> left, right = (SoSDensity(Gaussian(2.0), [[x]], [[1.0]], normalize=True) for x in (-3.0, 3.0))
    >>> p = mixture([left, right], [1, 3])
    >>> p.mean().round(12)
    array([1.5])
    >>> p
    SoSDensity(d=1, m=2, rank=2, kernel=Gaussian(sigma=2.0), measure=Lebesgue())
    """
    parts = _as_laws(densities)
    first, shares = parts[0], as_weights(weights, len(parts), "weights")
    if not isinstance(first, SoSDensity) or not all(
        isinstance(p, SoSDensity) and _same_class(first, p) for p in parts
    ):
        return SoSMixture(parts, shares)
    used = [
        (p.on_host(), w)
        for p, w in zip(parts, shares, strict=True)
        if w > 0.0 and isinstance(p, SoSDensity)
    ]
    points = np.concatenate([p.support_points for p, _ in used])
    log_rows = np.concatenate(
        [np.full(p.support_points.shape[0], 0.5 * (np.log(w) - p.log_unit)) for p, w in used]
    )
    F = block_diag(*(p.unit_factor for p, _ in used))
    return (
        assemble(first.on_host(), first.kernel, points, first.measure, F, log_rows)
        .on_device_of(first)
        ._with_names_of(first)
    )


@without_underflow
class SoSMixture(Queries):
    r"""p(x) = Σ_a w_a p_a(x): a mixture of sums of squares, each with a kernel, support points and
    a reference of its own.

    Every question is a sum over the parts where the answer is linear in p (values, probabilities,
    moments, embeddings), and computed from the values of p where it is not (entropy, modes). The
    parts may be :class:`~ksos.SoSDensity` with any kernel on Lebesgue measure or a box, or relative
    to normal laws and corrected by squares with a constant; or mixtures themselves.

    Parameters
    ----------
    densities : sequence of SoSDensity and SoSMixture
        All of the same features.
    weights : array of floats, optional
        Non-negative, scaled to sum one; default: equal ones.
    measure : Measure, optional
        What ``pdf`` is relative to. Default: the measure that all densities share; Lebesgue if they
        differ.

    >>> from ksos.kernels import Gaussian, Laplace
    >>> p = SoSDensity(Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)
    >>> q = SoSDensity(Laplace(1.0), [[4.0]], [[1.0]], normalize=True)
    >>> r = SoSMixture([p, q], [3, 1])
    >>> r.mean().round(9), round(r.probability(-np.inf, 0.0), 6)
    (array([1.]), 0.375042)
    >>> r
    SoSMixture(d=1, 2 parts, measure=Lebesgue())
    """

    measure: Measure
    parts: tuple[tuple[float, Part], ...]
    """(weight, part), the weights summing to one."""

    def __init__(
        self,
        densities: Iterable[SoSDensity | SoSMixture],
        weights: Any = None,
        measure: Measure | None = None,
    ) -> None:
        laws = _as_laws(densities)
        shares = as_weights(weights, len(laws), "weights")
        used = [(w, law) for w, law in zip(shares.tolist(), laws, strict=True) if w > 0.0]
        parts = [(w * v, part) for w, law in used for v, part in _parts_of(law.unnamed)]
        common = _common_measure([p for _, p in used], measure)
        _check_parts([part for _, part in parts], common)
        self._set(parts, common)
        self._take_names(laws[0].feature_names)

    def _set(self, parts: Sequence[tuple[float, Part]], measure: Measure) -> None:
        total = math.fsum(w for w, _ in parts)
        # weights that are scaled already keep their last bits
        total = 1.0 if abs(total - 1.0) <= _ROUNDING else total
        self.parts = tuple((w / total, part) for w, part in parts if w / total > _NEGLIGIBLE)
        self.measure = measure

    @classmethod
    def from_parts(
        cls, parts: Sequence[tuple[float, Part]], measure: Measure, *, check: bool = False
    ) -> Self:
        """The mixture of these parts; weights are scaled to sum one. With ``check``, parts that do
        not fit each other are refused.
        """
        if check:
            _check_parts([part for _, part in parts], measure)
        out = cls.__new__(cls)
        out._set(parts, measure)
        return out

    @classmethod
    def from_sklearn(cls, fitted: FittedMixture) -> Self:
        """The law of a fitted :class:`sklearn.mixture.GaussianMixture`, whatever its covariance
        type.
        """
        return cls([reference_density(GaussianMixture.from_sklearn(fitted))], measure=Lebesgue())

    def to_sklearn(self) -> FittedMixture:
        """The same law as a fitted :class:`sklearn.mixture.GaussianMixture` (covariance type
        "full"), if every part is a normal law.
        """
        from sklearn.mixture import (
            GaussianMixture as FittedMixture,
        )  # scikit-learn is needed only here

        shares, means, covariances = [], [], []
        for weight, part in self.as_mixture().parts:
            groups = part.groups()
            if groups is None or any(
                group.weights.size > 1 or group.weights[0] < 0.0 for group in groups
            ):
                raise ValueError(
                    f"{self!r} is no mixture of normal laws: one of its parts is a sum of squares"
                    " over several support points"
                )
            for group in groups:
                shares.append(weight * float(group.weights[0]))
                means.append(group.means[0])
                covariances.append(group.covariance)
        out = FittedMixture(n_components=len(shares))
        out.weights_, out.means_, out.covariances_ = (
            np.array(shares) / sum(shares),
            np.stack(means),
            np.stack(covariances),
        )
        roots = [np.linalg.inv(np.linalg.cholesky(covariance)).T for covariance in covariances]
        out.precisions_cholesky_ = np.stack(roots)
        out.precisions_ = np.stack([root @ root.T for root in roots])
        out.n_features_in_, out.converged_, out.n_iter_, out.lower_bound_ = (
            self.n_features,
            True,
            0,
            -np.inf,
        )
        return out

    @property
    def weights(self) -> np.ndarray:
        """w of the parts, shape (number of parts,)."""
        return np.array([w for w, _ in self.parts])

    @property
    def n_features(self) -> int:
        return self.parts[0][1].n_features

    @property
    def support_points(self) -> Array:
        """Those of all parts, and the means of normal laws, stacked."""
        return namespace(self.parts[0][1].support_points).concat(
            [part.support_points for _, part in self.parts]
        )

    @property
    def _home(self) -> Array:
        """An array of the backend and on the device where the mixture lies."""
        return self.parts[0][1].density.support_points

    @property
    def kernel(self) -> Kernel:
        """The kernel of the part with the largest weight: a suggestion for MMD, no more."""
        return max(self.parts, key=lambda one: one[0])[1].density.kernel

    @property
    def components(self) -> list[tuple[float, SoSDensity | SoSMixture]]:
        """(weight, part) with parts of mass one: sums of squares over one kernel; of a corrected
        reference, its parts by normal law.

        A normal law that is not corrected is a sum of one square. Parts of which features were
        integrated out are mixtures.
        """
        found: list[tuple[float, SoSDensity | SoSMixture]] = []
        for weight, part in self.parts:
            for share, one in part.parts():
                whole = len(one.shown) == one.density.n_features
                law = one.density if whole else SoSMixture.from_parts([(1.0, one)], Lebesgue())
                found.append((weight * share, law._with_names_of(self)))
        return found

    @property
    def bandwidths(self) -> np.ndarray:
        """Per feature the least length on which a part varies, shape (d,)."""
        return np.min([part.bandwidths for _, part in self.parts], axis=0)

    @property
    def rank(self) -> int:
        """The number of squares of all parts."""
        return sum(part.density.rank for _, part in self.parts)

    @property
    def plain(self) -> None:
        return None

    def as_mixture(self) -> SoSMixture:
        return self.on_host()

    @cached_property
    def answers(self) -> Sums:
        """What :class:`~ksos.density.queries.Queries` asks."""
        return Sums(self.unnamed)

    def __getstate__(self) -> dict[str, Any]:  # answers are made again
        return {name: value for name, value in vars(self).items() if name != "answers"}

    def log_by_volume(self, X: Any) -> Array:
        X = like(self._points(X), self._home)
        xp = namespace(X)
        with quiet():
            logs = xp.stack([part.log_density(X) + math.log(weight) for weight, part in self.parts])
            peak = xp.max(logs, axis=0)
            shift = xp.where(xp.isfinite(peak), peak, 0.0)
            return shift + xp.log(xp.sum(xp.exp(logs - shift), axis=0))

    def logpdf(self, X: Any) -> Array:
        """log p(X_i) relative to the measure, shape (n,); −inf where the density vanishes, never
        NaN.
        """
        X = like(self._points(X), self._home)
        out = self.unnamed.log_by_volume(X)
        return (
            out
            if self.measure.normals(self.n_features) is None
            else out - self.measure.log_density(X)
        )

    def pdf(self, X: Any) -> Array:
        """p(X_i) ≥ 0, shape (n,)."""
        out = self.logpdf(X)
        with quiet():
            return namespace(out).exp(out)

    @instead(seed="rng", random_state="rng")
    def rvs(self, size: int = 1, rng: Any = None, *, as_frame: bool = False) -> Any:
        """``size`` independent samples, shape (size, d); ``rng`` is a seed or a
        :class:`numpy.random.Generator`.

        The number from each part is multinomial; each part is sampled exactly, a corrected
        reference by rejection from the reference. With ``as_frame``, a pandas data frame.
        """
        n, generator, host = (
            as_count(size, "size", minimum=0),
            np.random.default_rng(rng),
            self.on_host(),
        )
        counts = generator.multinomial(n, host.weights / host.weights.sum())
        with shown(f"{n} samples"):
            samples = [
                part.draw(int(count), generator)
                for count, (_, part) in zip(counts, host.parts, strict=True)
                if count
            ]
        rows = np.concatenate([np.empty((0, self.n_features)), *samples])[generator.permutation(n)]
        return frame(rows, self.feature_names) if as_frame else like(rows, self.support_points)

    def mean(self, *, as_frame: bool = False) -> Any:
        found = self._moments()[0]
        return series(found, self.feature_names) if as_frame else like(found, self.support_points)

    def cov(self, *, as_frame: bool = False) -> Any:
        """The covariance matrix of x, shape (d, d): that within the parts and that of their means;
        with ``as_frame`` a data frame.
        """
        found = self._moments()[1]
        return square(found, self.feature_names) if as_frame else like(found, self.support_points)

    def mass(self) -> float:
        """∫ p dρ, which is one to rounding."""
        return math.fsum(w * part.density.mass() for w, part in self.parts)

    def _moments(self) -> tuple[np.ndarray, np.ndarray]:
        host = self.on_host()
        found = [part.mean_and_covariance() for _, part in host.parts]
        origin = found[0][0]
        away = np.stack([mean - origin for mean, _ in found])
        mean = host.weights @ away
        centred = np.sqrt(host.weights)[:, None] * (away - mean)
        within = sum(w * covariance for w, (_, covariance) in zip(host.weights, found, strict=True))
        return origin + mean, np.asarray(within + centred.T @ centred)

    def by_volume(self) -> SoSMixture:
        """The same law as a density with respect to Lebesgue measure (or the box that the parts
        share).
        """
        if self.measure.normals(self.n_features) is None:
            return self
        return SoSMixture.from_parts(self.parts, Lebesgue())._with_names_of(self)

    def marginal(self, features: Any) -> SoSMixture:
        """The law of the features S = ``features``, in that order: the mixture of the parts'
        marginals.
        """
        host, keep = (
            self.on_host(),
            as_features(features, self.n_features, "features", self.feature_names),
        )
        parts = [(w, part.marginal(keep)) for w, part in host.parts]
        return self._made(
            parts,
            (
                self.measure.restrict(keep)
                if self.measure.atoms is None
                else self._shared_atoms(parts)
            ),
            keep,
        )

    def _shared_atoms(self, parts: list[tuple[float, Part]]) -> Measure:
        measures = [part.density.measure for _, part in parts]
        if any(other != measures[0] for other in measures):
            raise ValueError(
                f"the marginals of the parts are relative to different measures, {self.measure!r}"
                " being no product; take those of the components, as in [(w, p.marginal(features))"
                " for w, p in mixture.components]"
            )
        return measures[0]

    def conditional(self, conditions: Any) -> SoSMixture:
        """The law of the other features given ``conditions`` = {feature: value or (low, high)}:
        weights become ∝ w_a p_a(conditions).

        Given an interval, parts with a metric and corrected references are mixtures of their laws
        at the nodes of a rule on it, good to about 1e-9, and the result is a density by volume if
        the measure ties the features.
        """
        names, (values, sides) = (
            self.feature_names,
            as_conditions(conditions, self.n_features, self.feature_names),
        )
        law = (
            self.on_host()._at_values(list(values), np.array(list(values.values())))
            if values
            else self.on_host()
        )
        left = [k for k in range(self.n_features) if k not in values]
        for feature, side in sides.items():
            law = law._in_interval(
                left.index(feature),
                side,
                f"the density vanishes where {named({feature: side}, names)}",
            )
            left.remove(feature)
        return law.on_device_of(self)

    def _at_values(self, given: list[int], values: np.ndarray) -> SoSMixture:
        rest = [k for k in range(self.n_features) if k not in given]
        found = [(w, part.given(given, values)) for w, part in self.parts]
        nothing_left = f"the density vanishes at {listed(given, values, self.feature_names)}"
        parts = _weighed(
            [(math.log(w) + one[0], one[1]) for w, one in found if one is not None], nothing_left
        )
        atoms = self.measure.atoms is not None
        measure = (
            parts[0][1].density.measure
            if atoms
            else _conditional_measure(self.measure, given, values, rest)
        )
        law = self._made(parts, measure, rest)
        warn_if_far(self.unnamed, law.unnamed, given, values, self.feature_names, self.parts)
        return law

    def _in_interval(
        self, feature: int, side: tuple[float, float], nothing_left: str
    ) -> SoSMixture:
        parts = _weighed(
            [
                (math.log(w) + log, one)
                for w, part in self.parts
                for log, one in part.within(feature, side)
            ],
            nothing_left,
        )
        rest = [k for k in range(self.n_features) if k != feature]
        if self.measure.atoms is not None:
            return self._made(parts, self._shared_atoms(parts), rest)
        return self._made(
            parts, Lebesgue() if self.measure.by_components else self.measure.restrict(rest), rest
        )

    def conditional_logpdf(self, X: Any, given: Any) -> np.ndarray:
        """log p(x_R | x_S) at every row x of ``X`` (n, d), S = ``given``: one condition per row."""
        return self.rows_given(
            like(self._points(X), self._home),
            as_features(given, self.n_features, "given", self.feature_names),
        )

    def rows_given(self, X: Array, features: list[int]) -> np.ndarray:
        """The same of rows and features that have been checked."""
        if len(features) == self.n_features:
            raise ValueError(
                f"given names all {self.n_features} features: none is left to have a density; use"
                " logpdf for that of a row"
            )
        bare = self.unnamed
        log_given = bare.marginal(features).logpdf(X[:, features])
        if np.any(np.isneginf(to_numpy(log_given))):
            row = int(np.flatnonzero(np.isneginf(to_numpy(log_given)))[0])
            words = (
                features
                if self.feature_names is None
                else quoted([self.feature_names[k] for k in features])
            )
            raise ValueError(
                f"the density of the features {words} vanishes in row {row} of X: there is no"
                " conditional density; leave out the rows where p.marginal(given).logpdf(X[:,"
                " given]) is -inf"
            )
        return bare.logpdf(X) - log_given

    def affine(self, scale: Any = 1.0, shift: Any = 0.0) -> SoSMixture:
        """The law of scale·x + shift; ``scale`` is a number, one per feature, or an invertible
        matrix.
        """
        d, host, names = self.n_features, self.on_host(), self.feature_names
        scale, shift = (
            per_feature(scale, d, names, "scale", 1.0),
            per_feature(shift, d, names, "shift", 0.0),
        )
        A = (
            np.asarray(scale, dtype=np.float64)
            if np.ndim(scale) == 2
            else np.diag(as_vector(scale, "scale", length=d))
        )
        b = as_vector(shift, "shift", length=d)
        if A.shape != (d, d) or not np.all(np.isfinite(A)) or np.linalg.matrix_rank(A) < d:
            raise ValueError(
                "scale must be a number other than 0, one per feature, or an invertible matrix"
                f" {(d, d)}; got {scale!r}"
            )
        parts = [(w, part.affine(A, b)) for w, part in host.parts]
        return self._made(parts, self.measure.linear_image(A, b)).with_feature_names(
            None if np.ndim(scale) == 2 else names
        )

    def times_gaussian(self, mean: Any, scale: Any) -> SoSMixture:
        """p(x)·exp(−½(x − mean)ᵀΣ⁻¹(x − mean)), scaled to mass one; ``scale`` is one deviation per
        feature (perhaps infinite), or Σ.
        """
        d, host, names = self.n_features, self.on_host(), self.feature_names
        mean, scale = (
            per_feature(mean, d, names, "mean", 0.0),
            per_feature(scale, d, names, "scale", np.inf),
        )
        mean = as_vector(mean, "mean", length=d)
        precision = (
            np.linalg.inv(np.asarray(scale, dtype=np.float64))
            if np.ndim(scale) == 2
            else np.diag(as_scales(scale, d) ** -2.0)
        )
        found = [(w, part.times_gaussian(mean, precision)) for w, part in host.parts]
        logs = np.array(
            [math.log(w) + one[0] if one is not None else -math.inf for w, one in found]
        )
        if not np.isfinite(logs.max()):
            raise ValueError(
                f"the density vanishes where the Gaussian with mean {mean.tolist()} does not"
            )
        parts = [
            (math.exp(log - logs.max()), one[1])
            for log, (_, one) in zip(logs.tolist(), found, strict=True)
            if one is not None
        ]
        return self._made(
            parts, self.measure if self.measure.atoms is None else parts[0][1].density.measure
        )

    def compress(
        self,
        rank: int | None = None,
        m: int | None = None,
        *,
        kernel: Kernel | None = None,
        landmarks: Any = None,
    ) -> Compression:
        """Every part with at most ``rank`` squares or ``m`` support points, and the MMD to this
        law; see :meth:`SoSDensity.compress`.
        """
        if (rank is None) == (m is None):
            raise ValueError(
                "give either rank, the number of columns, or m, the number of support points; got"
                f" rank={rank!r}, m={m!r}"
            )
        rank, m = (
            None if n is None else as_count(n, name) for n, name in ((rank, "rank"), (m, "m"))
        )
        small = self._made(
            [(w, part.compressed(rank, m)) for w, part in self.on_host().parts], self.measure
        )
        return Compression(small, small.mmd(self, kernel=kernel, landmarks=landmarks))  # type: ignore[arg-type]

    def _made(
        self,
        parts: list[tuple[float, Part]],
        measure: Measure,
        features: Sequence[int] | None = None,
    ) -> SoSMixture:
        return (
            SoSMixture.from_parts(parts, measure).on_device_of(self)._with_names_of(self, features)
        )

    def on_host(self) -> SoSMixture:
        """The same mixture in NumPy arrays; the mixture itself if it is made of them."""
        return self if is_numpy(self._home) else self._moved(lambda p: p.on_host())

    def to(self, device: Any) -> SoSMixture:
        """The same mixture in torch tensors on a device such as ``"cuda"``."""
        return self._moved(lambda p: p.to(device))

    def on_device_of(self, other: Queries) -> SoSMixture:
        """The same mixture in arrays of the backend and on the device of ``other``'s."""
        both = is_numpy(self._home) and is_numpy(other.support_points)
        return self if both else self._moved(lambda p: p.on_device_of(other))

    def _moved(self, move: Any) -> SoSMixture:
        return SoSMixture.from_parts(
            [(w, part.moved(move)) for w, part in self.parts], self.measure
        )._with_names_of(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the mixture to a file that :func:`ksos.load` reads; the old file or the new one is
        there, whole, at any moment.
        """
        from ksos.density.io import save  # io imports this class

        save(self.on_host(), path)

    def __repr__(self) -> str:
        n = len(self.parts)
        return (
            f"SoSMixture(d={self.n_features}{shown_names(self.feature_names)}, {n}"
            f" part{'s' if n > 1 else ''}, measure={self.measure!r})"
        )


def _weighed(parts: list[tuple[float, Part]], nothing_left: str) -> list[tuple[float, Part]]:
    """Parts with their weights instead of logarithms, the largest being one."""
    largest = max((log for log, _ in parts), default=-math.inf)
    if not math.isfinite(largest):
        raise ValueError(f"{nothing_left}, at least to rounding: there is no conditional density")
    return [(math.exp(log - largest), part) for log, part in parts]


def reference_density(measure: Measure) -> SoSDensity:
    """p = 1 relative to a mixture of normal laws, as a sum of squares with a constant and nothing
    else.
    """
    normals = measure.normals(measure.n_features or 1)
    if normals is None:
        raise ValueError(f"a Normal or GaussianMixture measure is needed; got {measure!r}")
    kernel = Gaussian(4.0 * normals.covariances[0])
    return SoSDensity.from_units(
        kernel, np.array(normals.means[:1]), np.zeros((1, 1)), 0.0, measure, np.ones(1)
    )


def _as_laws(densities: Any) -> list[SoSDensity | SoSMixture]:
    laws = list(densities) if isinstance(densities, Iterable) else [densities]
    for p in laws:
        if not isinstance(p, (SoSDensity, SoSMixture)):
            raise TypeError(f"densities must be a list of SoSDensity and SoSMixture; got {p!r}")
    if not laws:
        raise ValueError("densities must hold at least one density; got none")
    d = laws[0].n_features
    for a, p in enumerate(laws):
        if p.n_features != d:
            raise ValueError(
                f"a mixture needs densities of the same features: density 0 has {d} features, but"
                f" density {a} has {p.n_features}"
            )
    names = next((p.feature_names for p in laws if p.feature_names is not None), None)
    orders = [order_of(p.feature_names, names, f"density {a}") for a, p in enumerate(laws)]
    return [
        (p if order is None else p.marginal(order)).with_feature_names(names)
        for p, order in zip(laws, orders, strict=True)
    ]


def _same_class(first: SoSDensity, other: SoSDensity) -> bool:
    """Whether a mixture of the two is one sum of squares."""
    d = first.n_features
    same = type(first.kernel) is type(other.kernel) and np.array_equal(
        first.kernel.matrix(d), other.kernel.matrix(d)
    )
    words = [
        {key: value for key, value in p.kernel.parameters().items() if key != "sigma"}
        for p in (first, other)
    ]
    no_constant = first.unit_constant is None and other.unit_constant is None
    return bool(
        same
        and words[0] == words[1]
        and no_constant
        and first.measure.for_features(d) == other.measure.for_features(d)
    )


def _check_parts(parts: list[Part], measure: Measure) -> None:
    d = parts[0].n_features
    measure.check_features(d)
    if any(part.n_features != d for part in parts):
        raise ValueError(
            "the parts of a mixture must have the same features; got"
            f" {[part.n_features for part in parts]}"
        )
    discrete = [part.density.measure for part in parts if part.density.measure.atoms is not None]
    if (discrete or measure.atoms is not None) and not (
        len(discrete) == len(parts) and all(other == measure for other in discrete)
    ):
        raise ValueError("parts on a discrete measure mix with others on the same measure only")
    low, high = measure.boundaries(d)
    for part in parts:
        inner, outer = part.density.measure.boundaries(part.density.n_features)
        if np.any(inner[part.shown] < low) or np.any(outer[part.shown] > high):
            raise ValueError(f"a part of the mixture has mass outside of {measure!r}")


def _parts_of(law: SoSDensity | SoSMixture) -> list[tuple[float, Part]]:
    if isinstance(law, SoSMixture):
        return list(law.parts)
    if law.unit_constant is not None or law.measure.normals(law.n_features) is None:
        return [(1.0, as_part(law))]
    return [(mass, Squares(bump.on_device_of(law))) for mass, bump in bumps(law.on_host())]


def _common_measure(laws: list[SoSDensity | SoSMixture], measure: Measure | None) -> Measure:
    d = laws[0].n_features
    measures = [law.measure.for_features(d) for law in laws]
    same = all(other == measures[0] for other in measures)
    if any(one.atoms is not None for one in measures) and not (
        same and (measure is None or measure == measures[0])
    ):
        raise ValueError(
            "densities on a discrete measure mix with others on the same measure only: they have no"
            " density by volume; give all of them one Discrete measure"
        )
    if measure is None:
        return measures[0] if same else Lebesgue()
    if not isinstance(measure, Measure):
        raise TypeError(f"a measure such as ksos.measures.Lebesgue() is needed; got {measure!r}")
    measure.check_features(d)
    return measure


def _conditional_measure(
    measure: Measure, given: list[int], values: np.ndarray, rest: list[int]
) -> Measure:
    """What the conditional law is relative to: the same measure of the other features, a normal law
    given the values.
    """
    normals = measure.normals(len(given) + len(rest))
    if normals is None or not measure.by_components:
        return measure.restrict(rest)
    found = conditional_normals(normals, given, values)
    assert found is not None
    return GaussianMixture(*found[1])
