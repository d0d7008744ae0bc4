"""What k is: a positive, translation-invariant kernel with k(x, x) = 1, written as one formula of
the scaled distance, and distances that keep their digits: for data far from the origin, tiny
bandwidths and far-away queries.
"""

from __future__ import annotations

import functools
import operator
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self

import numpy as np

from ksos.ground import (
    CACHE_ELEMENTS,
    Array,
    as_bandwidth,
    as_choice,
    as_points,
    as_vector,
    column_names,
    full_single_precision,
    is_numpy,
    is_tensor,
    like,
    namespace,
    quiet,
    row_blocks,
    six_digits,
    to_numpy,
    zeros,
)

# half a gigabyte: a GPU wants few large operations on distances
DISTANCES_ON_DEVICE = 1 << 26
# half a megabyte: the block of a sum stays in the cache from the distances to the product
_BLOCK_ELEMENTS = 1 << 16
# a gigabyte: a device is busy with one block for longer than a call takes
_DEVICE_ELEMENTS = 1 << 27
_GRID = 2.0**40  # see KernelSums.at
_GROUP = 64  # rows that are added up in single precision: they lose 6 of its 24 bits at most
_UNDERFLOW = 2.0**-126  # the least normal number of single precision
DIRECT_FEATURES = 8
"""Up to so many features subtracting one by one, which loses nothing, is as fast as a product."""
_PRODUCT_ERROR = 1e-12  # of a squared distance, so of log k: above, features are subtracted singly
_LOOKED_AT = 64  # rows: the median of so many lies in the bulk of the data
ROUNDING = 2.0**-53
"""The unit of rounding in double precision."""
_SHOWN_BANDWIDTHS = 6  # in a repr, which should fit on one line


class Kernel(ABC):
    r"""A kernel k(x, y) = κ(t) of the squared scaled distance t = ‖(x − y)/σ‖².

    A subclass writes one formula, :meth:`log_profile`, the logarithm of κ. With ``product=True``
    the kernel is the product over features Π_k κ(((x_k − y_k)/σ_k)²) instead; for the Gaussian
    kernel both are the same.

    Parameters
    ----------
    sigma : float or array of d floats
        Bandwidth, one for all features or one per feature.
    product : bool
        Product over features instead of a function of the Euclidean distance.

    >>> from ksos.kernels import Matern
    >>> k: Kernel = Matern(sigma=2.0, nu=1.5)
    >>> k(np.array([[0.0], [1.0]])).round(3).tolist()
    [[1.0, 0.91], [0.91, 1.0]]
    """

    name: ClassVar[str]
    product: bool
    smooth: ClassVar[bool] = False
    """Whether κ(s²) is analytic in s; if not, it has a kink at s = 0."""

    def __init__(self, sigma: Any = 1.0, *, product: bool = False) -> None:
        self.sigma = as_bandwidth(sigma, "sigma")
        self.product = bool(product)

    @abstractmethod
    def log_profile(self, t: Array) -> Array:
        """log κ at the squared scaled distances t."""

    @abstractmethod
    def reach(self, log_level: float) -> float:
        """The scaled distance beyond which log κ ≤ ``log_level`` (a negative number)."""

    @np.errstate(under="ignore")
    def __call__(self, X: Array, Y: Array | None = None) -> Array:
        """The matrix k(X_i, Y_j); ``Y=None`` means ``Y = X``."""
        log_k = self.log(X, Y)
        return np.exp(log_k, out=log_k) if is_numpy(log_k) else namespace(X).exp(log_k)

    def against(self, Z: Array) -> Callable[[Array], Array]:
        """The map X ↦ k(X_i, Z_j) for many X, one after the other: what depends on Z alone may be
        computed once.
        """
        return lambda X: self(X, Z)

    def blocks(
        self, X: Array, Z: Array, elements: int, *, single: bool = False
    ) -> Iterator[tuple[slice, Array, float]]:
        """k(X_i, Z_j) for slices of the rows of X, about ``elements`` entries at a time; in single
        precision where asked for, with a bound on the relative error of all entries, and in double
        precision if there is none.
        """
        at = self.against(Z)
        for rows in row_blocks(X.shape[0], Z.shape[0], elements):
            yield rows, at(X[rows, :]), 0.0

    def log(self, X: Array, Y: Array | None = None) -> Array:
        """The matrix log k(X_i, Y_j): finite where k itself underflows."""
        Y = X if Y is None else Y
        sigma = like(self.sigma_vector(X.shape[1]), X)
        if not self.product or X.shape[1] == 1:
            return self.log_profile(squared_distances(X, Y, sigma))
        out = zeros((X.shape[0], Y.shape[0]), X)
        with quiet():
            for rows in row_blocks(X.shape[0], Y.shape[0]):
                block = out[rows, :]
                for squares in feature_squares(X[rows, :], Y, sigma):
                    block += self.log_profile(squares)
                out[rows, :] = block
        return out

    def log_at_widths(self, X: Array, Y: Array) -> Callable[[float], Array]:
        """The map c ↦ log k(X_i, Y_j) of the kernel that is wider by the factor c: what does not
        depend on c may be computed once.
        """
        return lambda multiple: self.scaled(multiple).log(X, Y)

    @property
    def full(self) -> bool:
        """Whether a metric correlates the features: then the matrix S takes the place of a
        bandwidth per feature.
        """
        return False

    def check_features(self, d: int) -> None:
        """Raise an error if points with ``d`` features cannot be compared."""
        if self.sigma.ndim and self.sigma.shape[0] != d:
            raise ValueError(
                f"the kernel has {self.sigma.shape[0]} bandwidths but the points have {d} features"
            )

    def sigma_vector(self, d: int) -> np.ndarray:
        """The bandwidth of each of ``d`` features."""
        self.check_features(d)
        if self.full:
            raise ValueError(
                "one bandwidth per feature is needed here, not a metric that correlates features;"
                f" got {self!r}; use the roots of its diagonal, or change the coordinates of the"
                " data"
            )
        return np.full(d, float(self.sigma)) if self.sigma.ndim == 0 else self.sigma

    def matrix(self, d: int) -> np.ndarray:
        """S = diag(σ²): the square of the scaled distance is (x − y)ᵀS⁻¹(x − y)."""
        return np.diag(self.sigma_vector(d) ** 2)

    def separable(self, d: int) -> bool:
        """Whether k is a product over the ``d`` features, which closed-form integrals, marginals
        and sampling need.
        """
        return self.product or d == 1

    def restrict(self, features: Any) -> Self:
        """The kernel on some of the features (of a separable kernel: its factor there)."""
        return self if self.sigma.ndim == 0 else self.with_sigma(self.sigma[np.asarray(features)])

    def scaled(self, factor: float) -> Self:
        """The same kernel, wider by a factor in every direction."""
        return self.with_sigma(factor * self.sigma)

    def squared(self) -> Self | None:
        """k², if it is a kernel of the same kind."""
        return None

    def with_sigma(self, sigma: Any) -> Self:
        """The same kernel with another bandwidth."""
        return type(self)(sigma, product=self.product)

    def parameters(self) -> dict[str, Any]:
        """The constructor arguments, as plain numbers and lists."""
        return {"sigma": self.sigma.tolist(), "product": self.product}

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.parameters() == other.parameters()

    def __hash__(self) -> int:
        return hash((type(self), repr(self.parameters())))

    def __repr__(self) -> str:
        listed = {
            key: repr(value) for key, value in self.parameters().items() if value is not False
        }
        sigma = six_digits(self.sigma)
        if self.sigma.size > _SHOWN_BANDWIDTHS:
            ends = np.ravel(sigma)[[0, -1]].tolist()
            kind = ", correlated" if self.full else ""
            sigma = f"[{ends[0]}, …, {ends[1]}] ({self.sigma.shape[0]} features{kind})"
        listed["sigma"] = str(sigma)
        # (x − x')ᵀS⁻¹(x − x') is no list of widths
        names = {"sigma": "metric"} if self.full else {}
        inside = ", ".join(f"{names.get(key, key)}={value}" for key, value in listed.items())
        return f"{type(self).__name__}({inside})"


class KernelSum:
    """Σ_i w_i k(·, x_i): ``points`` (n, d), ``weights`` of any sign, by default 1/n each, and the
    ``kernel``.
    """

    def __init__(self, points: Any, weights: Any = None, *, kernel: Kernel) -> None:
        self.points = as_points(points, "points", copy=True)
        self.feature_names = column_names(points, "points")
        n, self.n_features = self.points.shape
        self.weights = like(
            np.full(n, 1.0 / n) if weights is None else as_vector(weights, "weights", length=n),
            self.points,
        )
        if not isinstance(kernel, Kernel):
            raise TypeError(
                f"kernel must be a kernel object such as ksos.kernels.Gaussian(1.0); got {kernel!r}"
            )
        kernel.check_features(self.n_features)
        self.kernel = kernel


class KernelSums:
    r"""z_j = Σ_i a_i k(x_i, z_j) at landmarks z_j, and the mass Σ_i a_i: a value that grows by
    chunks and merges, in any order.

    Sums are compensated [Ogita2005]: what rounding takes from one addition is kept and added at the
    end, so that neither the chunks nor their order show. As a target, such as ``SquaredMMD(sums)``,
    it stands for the embedding of the data, of mass one, on these landmarks.

    Parameters
    ----------
    kernel : Kernel
        The kernel in which MMD is measured.
    landmarks : array (ℓ, d)
    precision : {"double", "single"}
        "single" computes the values of a Gaussian kernel with half as many bits and in half the
        memory; sums are kept in double precision. :attr:`error` bounds what that costs. Such sums
        are for a look at the data: as a target of a fit, whose certificate would not know of the
        error, they raise.

    >>> import numpy as np
    >>> from ksos.kernels import Gaussian
    >>> X, nothing = np.linspace(-1.0, 1.0, 9)[:, None], KernelSums(Gaussian(1.0), [[0.0], [1.0]])
    >>> parts = nothing.update(X[:4]).merge(nothing.update(X[4:]))
    >>> parts.count, bool(np.allclose(parts.values, nothing.update(X).values, rtol=1e-15))
    (9, True)
    """

    def __init__(
        self,
        kernel: Kernel,
        landmarks: Any,
        precision: str = "double",
        *,
        state: tuple[Array, int] | None = None,
    ) -> None:
        self.kernel = kernel
        self.landmarks = as_points(landmarks, "landmarks") if state is None else landmarks
        self.precision = as_choice(precision, "precision", ("double", "single"))
        kernel.check_features(int(self.landmarks.shape[1]))
        # sums, of which the last is the mass, what rounding has taken from them, and how far single
        # precision may be off
        self._sums, self.count = state or (
            zeros((3, self.landmarks.shape[0] + 1), self.landmarks),
            0,
        )

    @property
    def n_features(self) -> int:
        """d."""
        return int(self.landmarks.shape[1])

    @property
    def mass(self) -> float:
        """Σ_i a_i."""
        return float(self._sums[0, -1] + self._sums[1, -1])

    @property
    def values(self) -> Array:
        """Σ_i a_i k(x_i, z_j), shape (ℓ,)."""
        return (self._sums[0, :] + self._sums[1, :])[:-1]

    @property
    def error(self) -> float:
        """No entry of values/mass is off by more than this because of single precision: the largest
        bound over the landmarks.
        """
        return (
            float(namespace(self._sums).max(self._sums[2, :-1])) / self.mass if self.count else 0.0
        )

    def update(self, points: Any, weights: Any = None) -> KernelSums:
        """These sums and those of more samples (n, d) with weights a_i, 1 each by default."""
        points = as_points(points, "points", n_features=self.n_features)
        X = like(points, self.landmarks)
        if weights is None:
            weights = zeros((X.shape[0],), X) + 1.0
        elif is_tensor(weights) and tuple(weights.shape) == (X.shape[0],):  # it stays there
            weights = as_points(weights[:, None], "weights")[:, 0]
        else:
            weights = as_vector(weights, "weights", length=X.shape[0])
        return self.add(X, like(weights, X))

    @np.errstate(under="ignore")
    def add(self, X: Array, a: Array) -> KernelSums:
        """The same of arrays that were checked, and that lie where the landmarks do."""
        Z, single = self.landmarks, self.precision == "single"
        xp, (total, lost, error) = namespace(Z), (self._sums[k, :] for k in range(3))
        # equal masses are factored out: kernel values alone can be added in single precision
        same = single and bool(xp.all(a == a[0]))
        with full_single_precision():
            for rows, K, rho in self.kernel.blocks(
                X, Z, _BLOCK_ELEMENTS if is_numpy(Z) else _DEVICE_ELEMENTS, single=single
            ):
                some = a[rows]
                if same:
                    block, rho = a[0] * _grouped_sum(K), rho + _GROUP * float(xp.finfo(K.dtype).eps)
                else:
                    K = xp.astype(K, xp.float64, copy=False)
                    block = some @ K
                total, lost = two_sum(
                    total, lost, xp.concat([block, xp.reshape(xp.sum(some), (1,))])
                )
                if single:
                    # of values that are off by ρ each, a sum with weights of one sign is off by
                    # ρ/(1 − ρ) of itself; what underflows adds its own
                    size = xp.abs(block) if same else xp.abs(some) @ K
                    off = rho / (1.0 - rho) * size + _UNDERFLOW * xp.sum(xp.abs(some))
                    error = error + xp.concat([off, zeros((1,), Z)])
        return self._with(xp.stack([total, lost, error]), self.count + int(X.shape[0]))

    # The sums and the count of other samples, where these sums lie.
    def _with(self, sums: Array, count: int) -> KernelSums:
        landmarks = like(self.landmarks, sums)
        return KernelSums(self.kernel, landmarks, self.precision, state=(sums, count))

    def beside(self, points: Array) -> KernelSums:
        """The same sums on the device of ``points``."""
        return self._with(like(self._sums, points), self.count)

    def merge(self, other: KernelSums) -> KernelSums:
        """The sums over both sets of samples."""
        if not self.same_question(other):
            raise ValueError(
                "kernel sums add up that have one kernel, the same landmarks and precision; make"
                " both with KernelSums(kernel, landmarks)"
            )
        mine, others = self._sums, like(other._sums, self._sums)
        total, lost = two_sum(mine[0, :], mine[1, :] + others[1, :], others[0, :])
        sums = namespace(mine).stack([total, lost, mine[2, :] + others[2, :]])
        return self._with(sums, self.count + other.count)

    def same_question(self, other: KernelSums) -> bool:
        """Whether kernel, landmarks and precision are the same."""
        return (
            self.kernel == other.kernel
            and self.precision == other.precision
            and self.sees(other.landmarks)
        )

    def sees(self, Z: Array) -> bool:
        """Whether the landmarks are these."""
        return Z is self.landmarks or bool(np.array_equal(to_numpy(Z), to_numpy(self.landmarks)))

    def at(self, Z: Array) -> Array:
        """The embedding of the data, of mass one, at the landmarks Z, which must be those of the
        sums.

        Rounded to multiples of 2⁻⁴⁰, far above what order and chunks change (1e-17) and far below
        what any gap resolves: a solver then begins with the same bits and ends with the same
        density, whatever the chunks.
        """
        if not self.sees(Z):
            raise ValueError(
                "kernel sums know the data only at their own landmarks; give them to the space as"
                " landmarks=sums.landmarks"
            )
        if self.precision == "single":
            raise ValueError(
                f"kernel sums in single precision, known to {self.error:.1g}, are no target: a"
                ' certificate would not know of their error; make them with precision="double"'
            )
        if not self.mass > 0.0:
            raise ValueError(
                f"the samples of these kernel sums have mass {self.mass:g}; add samples with"
                " update(points)"
            )
        return like(namespace(self.values).round(self.values / self.mass * _GRID) / _GRID, Z)

    def state(self) -> dict[str, Any]:
        """Plain values and arrays from which :meth:`of_state` makes the same value."""
        from ksos.kernels import KERNELS  # which imports this file

        # a file names the kernel and never holds code, so that it can be opened without trust
        if KERNELS.get(self.kernel.name) is not type(self.kernel):
            raise ValueError(
                f"sums with {self.kernel!r} cannot be saved: only the kernels {', '.join(KERNELS)}"
                " are known to files"
            )
        return {
            "kernel": self.kernel.name,
            "parameters": self.kernel.parameters(),
            "precision": self.precision,
            "landmarks": to_numpy(self.landmarks),
            "sums": to_numpy(self._sums),
            "count": self.count,
        }

    @classmethod
    def of_state(cls, state: dict[str, Any]) -> KernelSums:
        """The value that :meth:`state` described."""
        from ksos.kernels import KERNELS  # which imports this file

        kernel = KERNELS[state["kernel"]](**state["parameters"])
        sums = state["sums"], int(state["count"])
        return cls(kernel, state["landmarks"], state["precision"], state=sums)

    def __repr__(self) -> str:
        return (
            f"KernelSums({self.count} samples at {self.landmarks.shape[0]} landmarks,"
            f" kernel={self.kernel!r})"
        )


# Σ_i K_ij, of 64 rows at a time in the precision of K and then in double: every partial sum is
# rounded 63 times, and no more.
def _grouped_sum(K: Array) -> Array:
    xp, whole = namespace(K), K.shape[0] // _GROUP * _GROUP
    groups = xp.sum(xp.reshape(K[:whole, :], (-1, _GROUP, K.shape[1])), axis=1)
    return xp.sum(groups, axis=0, dtype=xp.float64) + xp.sum(K[whole:, :], axis=0, dtype=xp.float64)


def two_sum(total: Array, lost: Array, more: Array) -> tuple[Array, Array]:
    """total + more, and what rounding has taken in all: Knuth's two-sum, exact whatever the order
    of magnitudes.
    """
    out = total + more
    back = out - total
    return out, lost + ((total - (out - back)) + (more - back))


def central_point(X: Array) -> Array:
    """An origin among the rows of ``X``, feature by feature the median of at most 64 of them, shape
    (1, d).

    Coordinates around it keep their digits for data far from 0, and for data with outliers.
    """
    some = X[:: -(-X.shape[0] // _LOOKED_AT), :]
    return namespace(X).sort(some, axis=0)[some.shape[0] // 2, :][None, :]


def feature_squares(X: Array, Y: Array, sigma: Array) -> Iterator[Array]:
    """Per feature k, the matrix ((X_ik − Y_jk)/σ_k)². Subtracting first makes it exact under a
    common shift.
    """
    xp = namespace(X, Y)
    one_x, one_y = xp.ones_like(X[..., 0]), xp.ones_like(Y[..., 0])
    for k in range(X.shape[-1]):
        # x_i − y_j as the matrix product [x 1]·[1; −y]: one rounding per entry, as in the
        # subtraction itself, in a third of its time
        scaled = xp.stack([X[..., k], one_x], axis=-1) @ xp.stack([one_y, -Y[..., k]], axis=-2)
        # a division per entry would cost the most here
        scaled *= 1.0 / sigma[k]
        scaled *= scaled
        yield scaled


def squared_distances(X: Array, Y: Array, sigma: Array, direct: int = DIRECT_FEATURES) -> Array:
    """D_ij = Σ_k ((X_ik − Y_jk)/σ_k)², shape (…, n, m), for points (…, n, d) and (…, m, d).

    Few features are subtracted one by one, which loses nothing. Many features go through one matrix
    product, with the error of that form, ε·(‖x‖² + ‖y‖²) around a common center, checked first.
    """
    xp = namespace(X, Y)
    n, d = X.shape[-2:]
    sigma = like(sigma, X)
    with quiet():
        if d > direct and Y.shape[-2]:
            center = xp.mean(Y, axis=-2, keepdims=True)
            Xs, Ys = (X - center) / sigma, (Y - center) / sigma
            x2, y2 = (xp.sum(Z * Z, axis=-1, keepdims=True) for Z in (Xs, Ys))
            if n and float(xp.max(x2) + xp.max(y2)) * 2.0 * ROUNDING <= _PRODUCT_ERROR:
                # the norms as two more columns of the product
                left = xp.concat([Xs, x2, xp.ones_like(x2)], axis=-1)
                D = left @ xp.concat([-2.0 * Ys, xp.ones_like(y2), y2], axis=-1).mT
                # to look is cheaper than to write
                return D if float(xp.min(D)) >= 0.0 else xp.clip(D, 0.0, None)
        elements = CACHE_ELEMENTS if is_numpy(X) else DISTANCES_ON_DEVICE
        blocks = list(row_blocks(n, Y.shape[-2], elements))
        if len(blocks) <= 1:
            return _sum_of_squares(X, Y, sigma)
        D = xp.empty((*X.shape[:-1], Y.shape[-2]), dtype=xp.float64, device=X.device)
        for rows in blocks:
            D[..., rows, :] = _sum_of_squares(X[..., rows, :], Y, sigma)
        return D


def _sum_of_squares(X: Array, Y: Array, sigma: Array) -> Array:
    # without features, a product of nothing is zero
    return functools.reduce(
        operator.iadd, feature_squares(X, Y, sigma) if X.shape[-1] else iter([X @ Y.mT])
    )
