"""Your own functional of the embedding and of density values at given points, in NumPy with
gradients or in torch without, and a check of its derivatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ksos.exceptions import ConvexityError, FunctionalError
from ksos.functionals.base import (
    LARGEST_EXPONENT,
    BoundTerm,
    Functional,
    Objective,
    Pair,
    Point,
    density_values,
    from_values,
    value_rows,
)
from ksos.ground import (
    Array,
    as_count,
    as_points,
    derivatives,
    inner,
    like,
    namespace,
    norm,
    to_numpy,
)
from ksos.space.space import SoSSpace

_REMEMBERED = 24  # points that a new one is compared with: as many more calls of dot, and no more
_PROBES = 6  # random densities at the start: a plain mistake shows at one of few
_ROUNDING = 1e-9  # of the values compared: far above what a user's sums lose, far below a mistake
_STEPS = (1e-3, 1e-4, 1e-5)  # of central differences: best of three between h² (truncation) and 1/h


class CustomFunctional(Functional):
    r"""F(p) = φ(w, p(x_1), …, p(x_n)) with a function φ of your own.

    φ gets, in this order and as far as they are asked for, the embedding (``embedding=``) and the
    density values (``points=``), each a vector. It returns its value and its gradient with respect
    to each of them: ``return value, g_embedding, g_values``. With ``torch=True`` it gets tensors
    and returns a scalar tensor; gradients and second derivatives are then taken by torch.

    Parameters
    ----------
    function : callable
    points : array (n, d), optional
        Where the density is evaluated.
    embedding : bool or array (ℓ, d)
        True: the orthonormal coordinates of the projected embedding, whose distances are projected
        MMDs. Points: the values of the projected embedding there.
    convex : bool
        Whether φ is convex. Only then does the solution carry a gap. What is declared is checked at
        every point that is met, and :class:`~ksos.exceptions.ConvexityError` raised with two points
        as the proof where it does not hold.
    hessian : callable, optional
        Takes what ``function`` takes and returns the matrix of second derivatives with respect to
        all its inputs, one after the other. Newton's method needs it; without it FISTA is used.
    torch : bool
    name : str, optional
        What messages call it.

    Examples
    --------
    >>> import ksos
    >>> from ksos.kernels import Gaussian
    >>> grid = np.linspace(-2.0, 2.0, 9)[:, None]
    >>> smooth = CustomFunctional(lambda p: (float(p @ p), 2 * p), points=grid, convex=True)
    >>> solution = ksos.minimize(smooth, ksos.SoSSpace(Gaussian(1.0), grid[::2]), tol=1e-6)
    >>> solution.status
    'solved'
    """

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        points: Any = None,
        embedding: Any = False,
        convex: bool = False,
        hessian: Callable[..., Any] | None = None,
        torch: bool = False,
        name: str | None = None,
    ) -> None:
        if not callable(function):
            raise TypeError(
                f"a function that returns a value and its gradients is needed; got {function!r}"
            )
        if hessian is not None and (torch or not callable(hessian)):
            raise TypeError(
                "hessian must be a function, and is for NumPy only: torch takes second derivatives"
                " by itself"
            )
        self.function, self.hessian = function, hessian
        self.points = None if points is None else to_numpy(as_points(points, "points", copy=True))
        self.embedding = (
            bool(embedding)
            if isinstance(embedding, (bool, np.bool_))
            else to_numpy(as_points(embedding, "embedding", copy=True))
        )
        if self.points is None and self.embedding is False:
            raise ValueError(
                "a functional must look at something: pass points= (density values), embedding=, or"
                " both"
            )
        self.convex, self.torch = bool(convex), bool(torch)
        self.name = str(getattr(function, "__name__", "function")) if name is None else name

    def bind(self, space: SoSSpace) -> BoundTerm:
        return _BoundCustom(self, space)

    def __repr__(self) -> str:
        return f"CustomFunctional({self.name})"


class _BoundCustom(BoundTerm):
    def __init__(self, functional: CustomFunctional, space: SoSSpace) -> None:
        self.functional, self.convex = functional, functional.convex
        self.uses_embedding = functional.embedding is not False
        self.twice_differentiable = functional.torch or functional.hessian is not None
        self._like, self._space = space.T, space
        self.E = self.psi = None
        # how many of the inputs belong to the embedding
        self.split = space.embedding_rank if self.uses_embedding else 0
        if isinstance(functional.embedding, np.ndarray):
            Z = as_points(functional.embedding, "embedding", n_features=space.n_features)
            self.split = Z.shape[0]
            K = space.embedding_kernel(like(Z, space.T), space.landmarks)
            self.E = K @ space.projection.S.T
        if functional.points is not None:
            if abs(space.log_unit) > LARGEST_EXPONENT:
                raise ValueError(
                    "density values overflow: the space's natural unit is"
                    f" exp({space.log_unit:.4g}); rescale the features"
                )
            self.psi = space.basis(functional.points) * math.exp(-0.5 * space.log_unit)
        self._seen: list[tuple[np.ndarray, float, np.ndarray]] = []
        self._last: tuple[tuple[np.ndarray, ...], float, list[np.ndarray]] | None = None
        rng = np.random.default_rng(0)
        # random densities: a plain mistake shows before any work is done
        for _ in range(_PROBES if self.convex else 0):
            g = rng.standard_normal((space.rank, 1 + int(rng.integers(3))))
            C = like(g @ g.T / np.sum(g * g), space.T)
            self._evaluate(space.map.apply(C) if self.uses_embedding else None, C)

    # What φ sees of a point, or of a direction.
    def _inputs(self, a: Array | None, C: Array) -> list[Array]:
        embedding = [a if self.E is None else self.E @ a] if self.uses_embedding else []
        return embedding if self.psi is None else [*embedding, density_values(self.psi, C)]

    # The adjoint of that.
    def _pulled_back(self, g: Array) -> Pair:
        first = g[: self.split]
        embedding = first if self.E is None else first @ self.E
        values = None if self.psi is None else from_values(self.psi, g[self.split :])
        return embedding if self.split else None, values

    def _evaluate(self, a: Array | None, C: Array) -> tuple[float, list[np.ndarray]]:
        inputs = tuple(to_numpy(x) for x in self._inputs(a, C))
        # value and gradient are asked for one after the other, and a user's function may be slow
        if self._last is not None and all(
            np.array_equal(x, y) for x, y in zip(self._last[0], inputs, strict=True)
        ):
            return self._last[1], self._last[2]
        value, gradients = _call(self.functional, inputs)
        if self.convex:
            self._check_convexity(inputs, value, gradients)
        self._last = (inputs, value, gradients)
        return value, gradients

    # f(y) ≥ f(x) + ⟨∇f(x), y − x⟩ for the new point and each of the last ones, both ways.
    def _check_convexity(
        self, inputs: Sequence[np.ndarray], value: float, gradients: Sequence[np.ndarray]
    ) -> None:
        x, g = np.concatenate(inputs), np.concatenate(gradients)
        for y, other, h in self._seen:
            for start, slope, here, there in ((y, h, other, value), (x, g, value, other)):
                move = (x - y) if start is y else (y - x)
                rise = float(slope @ move)
                size = abs(here) + abs(there) + float(np.abs(slope) @ np.abs(move))
                if there < here + rise - _ROUNDING * size - 1e-300:
                    raise ConvexityError(
                        f"{self.functional!r} is declared convex, but between two points its value"
                        f" changes from {here:.9g} to {there:.9g} where the gradient promises at"
                        f" least {here + rise:.9g}; pass convex=False, or mend the gradient"
                        " (check_gradient)"
                    )
        self._seen = [*self._seen[-_REMEMBERED + 1 :], (x, value, g)]

    def value(self, a: Array | None, C: Array) -> float:
        return self._evaluate(a, C)[0]

    def gradient(self, a: Array | None, C: Array) -> Pair:
        return self._pulled_back(like(np.concatenate(self._evaluate(a, C)[1]), self._like))

    # The matrix of second derivatives.
    def _second(self, a: Array | None, C: Array) -> Array:
        inputs = tuple(to_numpy(x) for x in self._inputs(a, C))
        n = sum(x.shape[0] for x in inputs)
        try:
            if self.functional.torch:
                H = derivatives(self.functional.function, inputs, second=True)[2]
            else:
                assert self.functional.hessian is not None
                H = np.asarray(self.functional.hessian(*inputs), dtype=np.float64)
        except Exception as error:
            raise FunctionalError(
                f"the second derivatives of {self.functional!r} raised {type(error).__name__}:"
                f" {error}"
            ) from error
        if H.shape != (n, n) or not np.all(np.isfinite(H)):
            raise FunctionalError(
                f"the second derivatives of {self.functional!r} must be a finite {n}×{n} matrix;"
                f" got shape {H.shape}"
            )
        return like(0.5 * (H + H.T), self._like)

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        if not self.twice_differentiable:
            return None
        # directions of the embedding: the rest is in factor_hessian
        several = da is not None and da.ndim == 2
        if several and not self.uses_embedding:
            return None, None
        H = self._second(a, C)
        if not several:
            return self._pulled_back(H @ namespace(dC).concat(self._inputs(da, dC)))
        product = H[: self.split, : self.split] @ (da if self.E is None else self.E @ da)
        return (product if self.E is None else self.E.T @ product), None

    def factor_hessian(self, F: Array) -> Array | None:
        """What density values contribute: with the rows R_i = 2ψ_i ⊗ Fᵀψ_i, RᵀH_pp R, and the parts
        that mix them with the embedding.
        """
        if self.psi is None:
            return None
        (r, k), xp, C = F.shape, namespace(F), F @ F.T
        a = self._space.map.apply(C) if self.uses_embedding else None
        H, split = self._second(a, C), self.split
        R = 2.0 * value_rows(self.psi, self.psi @ F)
        out = R.T @ (H[split:, split:] @ R)
        if split:
            J = 2.0 * xp.reshape(self._space.map.jacobian(F), (-1, r * k))
            J = J if self.E is None else self.E @ J
            mixed = R.T @ (H[split:, :split] @ J)
            out = out + mixed + mixed.T
        return xp.reshape(out, (r, k, r, k))


# φ at a point; whatever it does wrong becomes a FunctionalError in words.
def _call(
    functional: CustomFunctional, inputs: tuple[np.ndarray, ...]
) -> tuple[float, list[np.ndarray]]:
    shapes = " and ".join(str(x.shape) for x in inputs)
    try:
        if functional.torch:
            value, gradients, _ = derivatives(functional.function, inputs, second=False)
        else:
            answer = functional.function(*(x.copy() for x in inputs))
            if not isinstance(answer, tuple) or len(answer) != 1 + len(inputs):
                raise FunctionalError(
                    f"{functional!r} must return a value and {len(inputs)} gradient(s); got"
                    f" {answer!r}"
                )
            if np.size(answer[0]) != 1:
                raise FunctionalError(
                    f"the value that {functional!r} returns must be one number; got an array of"
                    f" shape {np.shape(answer[0])}"
                )
            value = float(np.reshape(answer[0], ()))
            gradients = [np.asarray(g, dtype=np.float64) for g in answer[1:]]
    except FunctionalError:
        raise
    except Exception as error:
        raise FunctionalError(
            f"{functional!r} raised {type(error).__name__}: {error}; it was called with shapes"
            f" {shapes}"
        ) from error
    if not math.isfinite(value):
        raise FunctionalError(
            f"{functional!r} must be finite on every density of the space; got {value}"
        )
    for g, x in zip(gradients, inputs, strict=True):
        if g.shape != x.shape or not np.all(np.isfinite(g)):
            raise FunctionalError(
                f"{functional!r} must return finite gradients of shapes {shapes}; got shape"
                f" {g.shape}"
            )
    return value, gradients


class GradientCheck(NamedTuple):
    """The largest relative differences between derivatives and finite differences: 1e-5 is fine,
    1e-2 is a mistake.

    >>> GradientCheck(gradient=3e-9, hessian=None).gradient < 1e-5
    True
    """

    gradient: float
    #: None if the functional offers no second derivatives.
    hessian: float | None


def check_gradient(
    functional: Functional, space: SoSSpace, *, n_points: int = 4, seed: int = 0
) -> GradientCheck:
    """Compare the derivatives of a functional with central differences of its value and of its
    gradient, at random densities of a space.

    >>> from ksos.functionals import SquaredMMD
    >>> from ksos.kernels import Gaussian
    >>> X = np.linspace(-1.0, 1.0, 5)[:, None]
    >>> check = check_gradient(SquaredMMD(X), SoSSpace(Gaussian(1.0), X))
    >>> check.gradient < 1e-6, check.hessian < 1e-6
    (True, True)
    """
    objective, rng = Objective.of(functional, space), np.random.default_rng(seed)
    first: list[float] = []
    second: list[float] = []
    for _ in range(as_count(n_points, "n_points")):
        C, other = (
            objective.point(like(_random_point(rng, space.rank), space.T)) for _ in range(2)
        )
        D, G = objective.point(other.C - C.C), objective.gradient(C)
        slope = inner(G, D.C)
        size = max(abs(slope), 1e-3 * norm(G) * norm(D.C), 1e-300)
        changes = _differences(objective, objective.value, C, D)
        first.append(min(abs(change - slope) / size for change in changes))
        product = objective.term.hessian(C.a, C.C, D.a, D.C)
        if objective.term.twice_differentiable and product is not None:
            # relative to the larger of the two
            H, least = objective.pull_back(product), max(1e-8 * norm(G), 1e-300)
            changes = _differences(objective, objective.gradient, C, D)
            second.append(
                min(norm(H - change) / max(norm(H), norm(change), least) for change in changes)
            )
    return GradientCheck(max(first), max(second, default=None))


# (function(C + hD) − function(C − hD))/2h for every h.
def _differences(
    objective: Objective, function: Callable[[Point], Any], C: Point, D: Point
) -> list[Any]:
    ends = [
        (h, function(objective.point(C.C + h * D.C)), function(objective.point(C.C - h * D.C)))
        for h in _STEPS
    ]
    return [(there - back) / (2.0 * h) for h, there, back in ends]


# Half the center, half a random point of low rank: away from the boundary, so that a step in any
# direction stays inside.
def _random_point(rng: np.random.Generator, r: int) -> np.ndarray:
    g = rng.standard_normal((r, 2))
    return np.asarray(0.5 * np.eye(r) / r + 0.5 * (g @ g.T) / np.sum(g * g))
