"""Do two samples have the same distribution? A permutation test over several kernels, and where the
two differ most.

With w_a, w_b the mean embeddings of the samples, Σ the covariance of k(·, x) over all rows together
and s_i its eigenvalues, they are

    ‖w_a − w_b‖²   (the squared MMD [Gretton2012])   and   ⟨w_a − w_b, (Σ + γ)⁻¹(w_a − w_b)⟩
    (kernel Fisher [Harchaoui2007]),

the latter for several degrees of freedom Σ_i s_i/(s_i + γ). Each is turned into an approximate
p-value, that of a weighted sum of χ² variables, and the harmonic mean of these [Wilson2019] is the
one statistic that permutations of the rows calibrate. So its level is exact, whatever the
approximation and however many kernels take part [Hemerik2018].
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.special import gammaincc

from ksos.density import Columns, SoSDensity, TableDensity
from ksos.ground import (
    Run,
    as_choice,
    as_count,
    as_points,
    column_names,
    in_order,
    row_blocks,
    to_numpy,
    warn_caller,
)
from ksos.kernels import Kernel
from ksos.space.embedding import (
    MeanEmbedding,
    Projection,
    TableEmbedding,
    evaluate,
    median_kernel,
)
from ksos.space.tables import (
    cells_of,
    decoded,
    encoded,
    is_mixed,
    recoded,
    rows_kernel,
    together,
)

# Multiples of the median distance, and the degrees of freedom of the statistics with that kernel;
# None: the squared MMD. Wide kernels see shifts and scales, narrow ones waves of many periods.
_FAMILY: tuple[tuple[float, tuple[float | None, ...]], ...] = (
    (4.0, (None, 2.0, 4.0, 8.0, 16.0, 32.0)),
    (1.0, (2.0, 4.0, 8.0, 16.0, 32.0)),
    (0.25, (None,)),
    (0.0625, (None,)),
)
_MOST_BLOCKS = 2048  # blocks that permutations move: 999 permutations of them are 16 MB
_FEWEST_BLOCKS = 64  # of the smaller sample: fewer would leave the statistic few values
_ROWS_PER_DEGREE = 8  # with fewer rows per degree of freedom the covariance is noise
_SMALLEST = 1e-300  # a p-value that underflows: its logarithm, and the harmonic mean, stay finite
_EQUAL = 1e-9  # of log₁₀ p: permutations that differ by less have the same statistic up to rounding
_BLOCK_ELEMENTS = 1 << 18  # kernel values at once: 2 MB, which stay in the cache


class KernelScore(NamedTuple):
    """What one kernel sees: a kernel Fisher statistic with so many ``degrees`` of freedom, or the
    squared MMD if they are None.

    ``approximate_pvalue`` is that of a weighted sum of χ² variables: only ``TwoSampleTest.pvalue``
    has an exact level.
    """

    kernel: Kernel
    degrees: float | None
    statistic: float
    approximate_pvalue: float


class WitnessPoint(NamedTuple):
    """The row among the landmarks where the witness is largest or smallest, and the ``value`` of
    w_a − w_b there.
    """

    point: np.ndarray
    value: float
    feature_names: tuple[str, ...] | None = None

    @property
    def by_name(self) -> dict[str, float]:
        """The coordinates under the names of the features; x0, x1, … if they have none."""
        names = self.feature_names or [f"x{k}" for k in range(self.point.shape[0])]
        return dict(zip(names, self.point.tolist(), strict=True))


@dataclass(frozen=True, repr=False)
class TwoSampleTest:
    """The answer of :func:`two_sample_test`.

    Attributes
    ----------
    statistic : float
        −log₁₀ of the harmonic mean of the approximate p-values of all ``scores``.
    pvalue : float
        The share of the permutations, the samples as they came being one of them, whose statistic
        is at least as large.
    n_permutations : int
    n_rows : tuple of two int
    scores : tuple of KernelScore
    kernel : Kernel
        That of the witness: the one whose MMD stands out most. By default the candidates are those
        with 1 and 1/4 times the median distance, since the witness of a wider one is largest far
        from the rows, and that of a narrower one shows single rows.
    mmd : float
        ‖w_a − w_b‖ in its RKHS, projected on the landmarks.
    witness : MeanEmbedding
        w_a − w_b, a function: positive where ``a`` has more mass than ``b``. It takes tables if the
        samples were tables with text or gaps.
    projected_witness : MeanEmbedding
        The same, projected on the landmarks, which are its points: so quick that extrema can be
        looked for.
    feature_names : tuple of str or None

    >>> import ksos
    >>> x = np.random.default_rng(0).normal(size=(2, 100, 1))
    >>> answer = ksos.two_sample_test(x[0], x[1] + 1.0, rng=0)
    >>> isinstance(answer, TwoSampleTest), answer.reject(0.05), answer.n_rows
    (True, True, (100, 100))
    >>> bool(answer.witness(answer.most_a.point[None])[0] > 0)  # more of the first sample there
    True
    """

    statistic: float
    pvalue: float
    n_permutations: int
    n_rows: tuple[int, int]
    scores: tuple[KernelScore, ...]
    kernel: Kernel
    mmd: float
    witness: MeanEmbedding
    projected_witness: MeanEmbedding
    feature_names: tuple[str, ...] | None = None

    @cached_property
    def most_a(self) -> WitnessPoint:
        """Where ``a`` exceeds ``b`` most: the maximum of the witness over the landmarks."""
        return self._extreme(1.0)

    @cached_property
    def most_b(self) -> WitnessPoint:
        """Where ``b`` exceeds ``a`` most: its minimum."""
        return self._extreme(-1.0)

    def reject(self, level: float = 0.05) -> bool:
        """Whether the samples differ, at this level: if they have one distribution, the
        probability of True is at most ``level``.
        """
        if not 0.0 < level < 1.0:
            raise ValueError(f"level must lie between 0 and 1, such as 0.05; got {level!r}")
        return self.pvalue <= level

    def _extreme(self, sign: float) -> WitnessPoint:
        """The landmark where the witness times the sign is largest; of a table, one without gaps if
        there is one.
        """
        landmarks = self.projected_witness.points
        values = sign * to_numpy(evaluate(self.witness, self.kernel, landmarks))
        Z, columns = to_numpy(landmarks), None
        if isinstance(self.witness, TableEmbedding):
            columns = self.witness.columns
            gaps = Z[:, len(columns.listed) :].min(axis=1) < 0.0
            values = np.where(gaps & ~gaps.all(), -np.inf, values)
        best = int(np.argmax(values))
        point = Z[best] if columns is None else decoded(columns, Z[best])
        return WitnessPoint(point, sign * float(values[best]), self.feature_names)

    def __repr__(self) -> str:
        n, m = self.n_rows
        return (
            f"TwoSampleTest(statistic={self.statistic:.4g}, pvalue={self.pvalue:.4g}, {n} and {m}"
            f" rows, kernel={self.kernel!r})"
        )


def two_sample_test(
    a: Any,
    b: Any,
    kernel: Kernel | Sequence[Kernel] | None = None,
    *,
    n_permutations: int = 999,
    n_landmarks: int = 256,
    missing: str = "model",
    rng: Any = None,
) -> TwoSampleTest:
    """Test whether the rows of ``a`` and ``b`` have the same distribution, by permutations: with
    any number of them the level is exact.

    Parameters
    ----------
    a, b : array (n, d) and (m, d), or data frames
        Rows that are independent of each other and count the same. Columns of data frames may hold
        text, flags or categories, and missing cells.
    kernel : Kernel or sequence of them, optional
        The squared MMD in their RKHSs, aggregated. Default: Gaussian kernels of 4, 1, 1/4 and 1/16
        times the median distance between the rows (:func:`ksos.median_kernel`), the two wide ones
        also as kernel Fisher statistics with 2 to 32 degrees of freedom.
    n_permutations : int
        The least p-value is 1/(n_permutations + 1).
    n_landmarks : int
        Embeddings are projected on so many of the rows, drawn at random: time and memory grow in
        proportion to the rows. With at most so many rows nothing is lost.
    missing : {"model", "drop", "raise"}
        What to do about missing cells. "model": a missing cell stands for all observed cells of its
        column, of both samples. The level is exact. "drop": incomplete rows are dropped.
    rng : seed or Generator, optional
        For permutations and landmarks.

    With more than 2,048 rows, permutations move blocks of rows that are drawn at random: the level
    is still exact.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).normal(size=(2, 200, 1))
    >>> found = two_sample_test(x[0], x[1] + 1.0, rng=0)
    >>> found.pvalue, found.reject(0.01), found.most_a.point < found.most_b.point
    (0.001, True, array([ True]))
    """
    as_choice(missing, "missing", ("model", "drop", "raise"))
    columns, names, x, y = _samples(a, b, missing)
    as_count(n_permutations, "n_permutations")
    as_count(n_landmarks, "n_landmarks")
    generator, n, m = np.random.default_rng(rng), x.shape[0], y.shape[0]
    least = (2.0 if n == m else 1.0) / math.comb(n + m, min(n, m)) if n + m < 1000 else 0.0
    if least > 0.05:
        message = (
            f"with {n} and {m} rows no p-value can be less than {min(least, 1.0):.2g}; collect more"
            " rows"
        )
        warnings.warn(message, UserWarning, stacklevel=3)
    if columns is None:
        family = _family(kernel, x, y, generator)
    else:
        given = kernel if isinstance(kernel, Iterable) else [kernel]
        rows = np.concatenate([x, y])
        of_rows = [rows_kernel(columns, rows, one) for one in given]
        family = _multiples(of_rows[0]) if kernel is None else [(k, (None,)) for k in of_rows]
    # different rows of both samples; which sample a row is of plays no part
    both, few = np.concatenate([x, y]), n_landmarks
    chosen = np.arange(n + m) if n + m <= few else generator.choice(n + m, few, replace=False)
    landmarks = np.unique(both[chosen], axis=0)
    blocks = _Blocks.of(x, y, generator)
    moved = blocks.permutations(n_permutations, generator)
    views: list[_View] = []
    pvalues: list[np.ndarray] = []
    scores: list[KernelScore] = []
    with Run(None, "two_sample_test") as run:
        for number, (k, degrees) in enumerate(family):
            what = f"{n_permutations} permutations, kernel {number + 1} of {len(family)}"
            run.tell(what, number, len(family))
            views.append(view := _View(k, landmarks, blocks))
            # of w_a − w_b under each permutation, in the axes of the covariance
            squares = (view.inverse * (moved @ view.blocks) + view.constant) ** 2
            # a kernel that sees no row beside its landmarks sees chance alone
            used = kernel is not None or view.neighbors >= 1.0
            for q in degrees:
                weights = view.weights(q, n + m)
                if weights is not None and (used or not scores):
                    values = squares @ weights
                    pvalues.append(view.pvalues(values, weights))
                    scores.append(KernelScore(k, q, float(values[0]), float(pvalues[-1][0])))
    # the samples as they came are the first of the permutations
    evidence = np.log10(np.mean(1.0 / np.maximum(pvalues, _SMALLEST), axis=0))
    best = min(views if kernel is not None else views[1:3], key=lambda view: view.plain_pvalue)
    both.setflags(write=False)
    embed: Any = MeanEmbedding if columns is None else partial(TableEmbedding, columns)
    return TwoSampleTest(
        statistic=float(evidence[0]),
        pvalue=float(np.mean(evidence >= evidence[0] - _EQUAL)),
        n_permutations=int(n_permutations),
        n_rows=(n, m),
        scores=tuple(scores),
        kernel=best.kernel,
        mmd=math.sqrt(float(np.sum(best.difference**2))),
        witness=embed(both, np.repeat([1.0 / n, -1.0 / m], [n, m]), kernel=best.kernel),
        projected_witness=embed(
            landmarks, best.S.T @ (best.S @ best.at_landmarks), kernel=best.kernel
        ),
        feature_names=names,
    )


def _samples(
    a: Any, b: Any, missing: str
) -> tuple[Columns | None, tuple[str, ...] | None, np.ndarray, np.ndarray]:
    """The columns unless all are plain numbers, the names of the features, and the rows with
    features in the same order.
    """
    for name, sample in (("a", a), ("b", b)):
        if isinstance(sample, (SoSDensity, TableDensity)):
            raise TypeError(
                f"{name} is a density, but the test needs rows: draw some, as p.rvs(1000); ksos.mmd"
                " measures distances"
            )
        if isinstance(sample, MeanEmbedding):
            raise TypeError(
                f"{name} is an embedding, whose weights permutations would not keep; pass its rows,"
                " or rows drawn with its weights, as rng.choice(points, size, p=weights)"
            )
    if is_mixed(a) or is_mixed(b):
        pairs = [cells_of(sample, what, missing) for what, sample in (("a", a), ("b", b))]
        columns = together(*(own for own, _ in pairs))
        for what, (_, cells) in zip("ab", pairs, strict=True):
            if gaps := int(np.isnan(cells).sum()):
                warn_caller(
                    f"{what} has {gaps} missing cells, each of which stands for all observed cells"
                    " of its column (missing='model'); missing='drop' drops their rows"
                )
        x, y = (encoded(columns, recoded(cells, own, columns)) for own, cells in pairs)
        return columns, columns.names, x, y
    names = column_names(a, "a") or column_names(b, "b")
    x, y = (
        to_numpy(as_points(in_order(sample, names, what), what))
        for what, sample in (("a", a), ("b", b))
    )
    if x.shape[1] != y.shape[1]:
        raise ValueError(f"a has {x.shape[1]} features, but b has {y.shape[1]}")
    return None, names, x, y


def _family(
    kernel: Any, x: np.ndarray, y: np.ndarray, rng: np.random.Generator
) -> list[tuple[Kernel, tuple[float | None, ...]]]:
    """Kernels, and the degrees of freedom of their statistics."""
    if kernel is None:
        return _multiples(median_kernel(x, y, rng=rng))
    given = list(kernel) if isinstance(kernel, Iterable) else [kernel]
    if not given or not all(isinstance(k, Kernel) for k in given):
        raise TypeError(
            "kernel must be a kernel object such as ksos.kernels.Gaussian(1.0), a list of them, or"
            f" None; got {kernel!r}"
        )
    for k in given:
        k.check_features(x.shape[1])
    return [(k, (None,)) for k in given]


def _multiples(median: Kernel) -> list[tuple[Kernel, tuple[float | None, ...]]]:
    return [(median.scaled(multiple), degrees) for multiple, degrees in _FAMILY]


@dataclass(frozen=True)
class _Blocks:
    """The rows of both ``samples`` in blocks of ``size`` rows, ``counts`` of them; rows beyond the
    last one belong to none.

    A permutation moves whole blocks, and all other rows stay where they are. These permutations
    form a subgroup of all, which is all that an exact level needs.
    """

    size: int
    counts: tuple[int, int]
    samples: tuple[np.ndarray, np.ndarray]

    @classmethod
    def of(cls, x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> _Blocks:
        n, m = x.shape[0], y.shape[0]
        small, large = sorted((n, m))
        size = max(1, min(math.ceil((n + m) / _MOST_BLOCKS), small // _FEWEST_BLOCKS))
        few = small // size
        many = min(large // size, _MOST_BLOCKS - few) if n + m > _MOST_BLOCKS else large // size
        counts = (few, many) if n <= m else (many, few)
        return cls(size, counts, (x[rng.permutation(n)], y[rng.permutation(m)]))

    def permutations(self, count: int, rng: np.random.Generator) -> np.ndarray:
        """Which blocks are counted to ``a``, 1.0 or 0.0, shape (1 + count, blocks); the first row
        is as the samples came.
        """
        few, total = self.counts[0], sum(self.counts)
        moved = np.zeros((1 + count, total))
        moved[0, :few] = 1.0
        chosen = np.argsort(rng.random((count, total)), axis=1)[:, :few]
        np.put_along_axis(moved[1:], chosen, 1.0, axis=1)
        return moved

    def kernel_sums(self, kernel: Kernel, Z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Σ_i k(x_i, Z) over the rows of each block, and over the rows of each sample that are in
        none, shape (2, ℓ).
        """
        found, rests = [], np.zeros((2, Z.shape[0]))
        for which, (X, count) in enumerate(zip(self.samples, self.counts, strict=True)):
            inside, outside = np.split(X, [count * self.size])
            for some in row_blocks(count, self.size * Z.shape[0], _BLOCK_ELEMENTS):
                K = kernel(inside[some.start * self.size : some.stop * self.size], Z)
                found.append(K.reshape(-1, self.size, Z.shape[0]).sum(axis=1))
            for rows in row_blocks(outside.shape[0], Z.shape[0], _BLOCK_ELEMENTS):
                rests[which] += kernel(outside[rows], Z).sum(axis=0)
        return np.concatenate(found), rests


class _View:
    """What one kernel sees of the samples: coordinates on the landmarks, in the axes of the
    covariance of all rows.
    """

    def __init__(self, kernel: Kernel, Z: np.ndarray, blocks: _Blocks) -> None:
        self.kernel, few = kernel, blocks.counts[0]
        sizes = np.array([X.shape[0] for X in blocks.samples])
        sums, rests = blocks.kernel_sums(kernel, Z)
        totals = np.stack([sums[:few].sum(axis=0), sums[few:].sum(axis=0)]) + rests
        self.at_landmarks = totals[0] / sizes[0] - totals[1] / sizes[1]
        mean = totals.sum(axis=0) / sizes.sum()
        # how many rows a landmark sees, besides itself
        self.neighbors = float(totals.sum(axis=0).mean()) - 1.0
        self.S = Projection(kernel, Z).S
        outside = sizes - blocks.size * np.array(blocks.counts)
        # differences from the mean are small numbers, which keep their digits
        C = (sums - blocks.size * mean) @ self.S.T
        rest = (rests - outside[:, None] * mean) @ self.S.T
        s, axes = np.linalg.eigh(C.T @ C / (blocks.size * C.shape[0]))
        self.s, axes = np.maximum(s[::-1], 0.0), axes[:, ::-1]
        self.blocks, self.inverse = C @ axes, float(np.sum(1.0 / sizes))
        ends = (rest[0] / sizes[0] - rest[1] / sizes[1]) @ axes
        self.constant = ends - self.blocks.sum(axis=0) / sizes[1]
        self.difference = self.inverse * self.blocks[:few].sum(axis=0) + self.constant
        square = np.array([np.sum(self.difference**2)])
        self.plain_pvalue = float(self.pvalues(square, np.ones_like(self.s))[0])

    def weights(self, degrees: float | None, rows: int) -> np.ndarray | None:
        """Those of the squared coordinates; None if so many degrees of freedom are too many for the
        rows, or for the kernel.
        """
        if degrees is None:
            return np.ones_like(self.s)
        seen = self.s[self.s > 1e-12 * max(float(self.s[0]), _SMALLEST)]
        if degrees * _ROWS_PER_DEGREE > rows or degrees >= seen.shape[0] - 1:
            return None

        # the ridge that leaves so many degrees of freedom, by its logarithm in units of s_1
        log_ratio = brentq(
            lambda t: float(np.sum(seen / (seen + math.exp(t) * seen[0]))) - degrees,
            -60.0,
            20.0,
            xtol=1e-6,
        )
        ridge = math.exp(log_ratio) * float(seen[0])
        return np.asarray(1.0 / (self.s + ridge))

    def pvalues(self, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """P(Σ_i w_i s_i χ²_1/h ≥ value), 1/h = 1/n + 1/m, by the shifted gamma distribution with
        the same three cumulants [Hall1983].
        """
        scale = float(np.max(weights * self.s))
        if scale <= 0.0:
            return np.ones_like(values)
        part = weights * self.s / scale
        mean, variance, third = part.sum(), 2.0 * np.sum(part**2), 8.0 * np.sum(part**3)
        shape, unit = 4.0 * variance**3 / third**2, 0.5 * third / variance
        shifted = shape + (values / (scale * self.inverse) - mean) / unit
        return np.asarray(gammaincc(shape, np.maximum(shifted, 0.0)))
