"""The squared L² distance to a density, and least squares for samples: as an array, or as sums
over chunks that are gone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ksos.density import SoSDensity
from ksos.exceptions import IntegralNotAvailableError
from ksos.functionals.base import (
    Bound,
    BoundLinear,
    BoundTerm,
    Pair,
    PointwiseTerm,
    density_values,
    from_values,
)
from ksos.functionals.linear import ScaledFunctional
from ksos.ground import (
    Array,
    as_points,
    as_vector,
    inner,
    like,
    row_blocks,
    to_numpy,
)
from ksos.integrals import Rule, closed_form, exact_rule, panel_rules, smooth_rules
from ksos.kernels import Kernel
from ksos.space import MeanEmbedding, SoSSpace

_AGREEMENT = 1e-11  # relative, of two rules in a row: some roundings of a sum over so many nodes
_NEGLIGIBLE = 1e-17  # share of a node in ∫‖ψ‖⁴: 2^16 such nodes stay below the agreement
_MOST_NODES = 1 << 16  # of a refined rule, all of which every step visits: 50 MB at rank 100
_MOST_EXACT_NODES = 1 << 18  # before those without weight go, of rules that need no refinement
_MOST_FEATURES = 3  # 2^16 nodes are 40 per axis there, and 16 in four features, which is too few
_BLOCK_ELEMENTS = 1 << 20  # of the basis at once: 8 MB, about what a processor's cache holds


class SquaredL2(ScaledFunctional):
    r"""∫ (p − p_target)² dρ for a density; for samples or an embedding Σ a_i δ_{x_i}, the
    least-squares criterion ∫ p² dρ − 2 Σ a_i p(x_i).

    The criterion is the distance up to a constant that does not depend on p (and is infinite for
    atoms). Integrals are sums over the nodes of a rule that is refined until they agree to
    rounding; the solution's ``integration_error`` says what is left. In more than three features,
    use a discrete measure, on which they are exact.

    Parameters
    ----------
    target : SoSDensity, array (n, d), MeanEmbedding or BasisSums
        A density must be one with respect to the measure of the space. Sums over the basis stand
        for samples that are gone.
    relative : bool
        In units of 1/w₀ (w₀ = max_i ∫k(x,x̃_i)²dρ), which makes the value independent of the data's
        scale.

    >>> import ksos
    >>> X = [[-0.5], [0.0], [0.5]]
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), X)
    >>> ksos.minimize(SquaredL2(X) + 1e-3 * ksos.functionals.Trace(), space).status
    'solved'
    """

    def __init__(self, target: Any, *, relative: bool = False) -> None:
        target = target.with_feature_names(None) if isinstance(target, SoSDensity) else target
        self.target = (
            target
            if isinstance(target, (MeanEmbedding, SoSDensity, BasisSums))
            else to_numpy(as_points(target, "target", copy=True))
        )
        super().__init__(relative=relative)

    def bind(self, space: SoSSpace) -> BoundTerm:
        target = self.target
        d = target.shape[1] if isinstance(target, np.ndarray) else target.n_features
        if d != space.n_features:
            raise ValueError(f"the target has {d} features, but the space has {space.n_features}")
        if isinstance(target, SoSDensity) and target.measure != space.measure:
            raise ValueError(
                f"the target is a density with respect to {target.measure!r}, but the space's"
                f" measure is {space.measure!r}"
            )
        unit = self.unit(space)
        nodes, log_weights, error = _l2_rule(
            space, target if isinstance(target, SoSDensity) else None
        )
        psi, roots = space.basis(nodes), like(np.exp(0.5 * (log_weights - space.log_unit)), space.T)
        if isinstance(target, SoSDensity):
            with np.errstate(divide="ignore"):
                wanted = like(np.exp(to_numpy(target.logpdf(nodes)) + space.log_unit), space.T)
            return (unit * Bound(_BoundL2(psi, roots, roots * wanted, error))).bind(space)
        if isinstance(target, BasisSums):
            second_order = like(target.on(space), space.T)
        else:
            sums = (
                MeanEmbedding(target, kernel=space.kernel)
                if isinstance(target, np.ndarray)
                else target
            )
            points, masses = to_numpy(sums.points), like(sums.weights, space.T)
            second_order = from_values(space.basis(points), masses)
        samples = Bound(BoundLinear(-2.0 * second_order, curved=False))
        return (unit * (Bound(_BoundL2(psi, roots, 0.0 * roots, error)) + samples)).bind(space)

    def __repr__(self) -> str:
        shown = (
            f"{self.target.shape[0]} samples"
            if isinstance(self.target, np.ndarray)
            else repr(self.target)
        )
        return f"SquaredL2({shown}{', relative=True' if self.relative else ''})"


# Nodes, log weights, and how far ∫p²dρ may be off with them, estimated, in units of exp(−log_unit).
#
# There are as few nodes as possible: every evaluation of the functional visits all of them.
def _l2_rule(space: SoSSpace, target: SoSDensity | None) -> tuple[np.ndarray, np.ndarray, float]:
    if (atoms := space.measure.atoms) is not None:
        return to_numpy(atoms.points), np.log(to_numpy(atoms.weights)), 0.0
    d = space.n_features
    if space.constant:
        raise IntegralNotAvailableError(
            "the L² distance over a basis with the constant function needs a rule for all of"
            f" {space.measure!r}; leave the constant out (constant=False), or use a discrete"
            " measure"
        )
    sources = [(closed_form(space.kernel, space.measure, d), to_numpy(space.support_points))]
    if target is not None:
        sources += [
            (one.integrals, to_numpy(one.support_points))
            for one in (term.joint for _, term in target.terms.on_host.parts)
        ]
    smooth = all(integrals.kernel.smooth for integrals, _ in sources)
    found, previous, error = None, math.nan, math.inf
    rules: Iterable[Rule] = (
        (smooth_rules if smooth else panel_rules)(sources, _MOST_NODES)
        if d <= _MOST_FEATURES
        else ()
    )
    if not smooth:
        # exact for ∫p²dρ, and with a target for ∫p·p_target dρ too, if so many nodes suffice
        (integrals, X), (other, Y) = sources[0], sources[-1]
        pairs = 2 * [(other.kernel, Y)]
        exact = exact_rule(integrals, X, pairs, _MOST_EXACT_NODES, error=1e-3 * _AGREEMENT)
        if exact is not None:
            rules, previous = [(X[0] + exact[0], exact[1])], math.inf
    for nodes, log_weights in rules:
        # p ≤ ‖ψ‖² for every density of the space
        squares = np.sum(to_numpy(space.basis(nodes)) ** 2, axis=1)
        if target is not None:
            squares = np.maximum(squares, to_numpy(target.pdf(nodes)) * math.exp(space.log_unit))
        parts = np.exp(log_weights - space.log_unit) * squares**2
        total = float(parts.sum())
        keep = parts > _NEGLIGIBLE * total
        found, error, previous = (
            (nodes[keep], log_weights[keep]),
            0.0 if math.isinf(previous) else abs(total - previous),
            total,
        )
        if error <= _AGREEMENT * total:
            break
    if found is None:
        raise IntegralNotAvailableError(
            f"the L² distance on {space.measure!r} with {d} features would need more than"
            f" {_MOST_NODES} nodes; use a discrete measure for the space, such as"
            " Discrete.qmc(box, …)"
        )
    return *found, error


class _BoundL2(PointwiseTerm):
    """‖root·p − wanted‖² over the nodes, root_n² being their weights."""

    quadratic = True

    def __init__(self, psi: Array, roots: Array, wanted: Array, error: float) -> None:
        self.psi, self.roots, self.wanted, self.integration_error = psi, roots, wanted, error

    def value_at(self, p: Array) -> float:
        residual = self.roots * p - self.wanted
        return inner(residual, residual)

    def slopes(self, p: Array) -> tuple[Array, Array]:
        return 2.0 * self.roots * (self.roots * p - self.wanted), 2.0 * self.roots**2

    def hessian(self, a: Array | None, C: Array, da: Array | None, dC: Array) -> Pair | None:
        # without the values at C, which would double the cost of a step
        return None, from_values(self.psi, 2.0 * self.roots**2 * density_values(self.psi, dC))


@dataclass(frozen=True, eq=False)
class Basis:
    """ψ of a space and nothing else of it, so that it travels: ψ(x) = Tᵀk(x), the constant function
    before the kernels if there is one.
    """

    kernel: Kernel
    support_points: np.ndarray
    T: np.ndarray
    constant: bool

    @classmethod
    def of(cls, space: SoSSpace) -> Basis:
        return cls(space.kernel, to_numpy(space.support_points), to_numpy(space.T), space.constant)

    def blocks(self, X: np.ndarray) -> Iterator[tuple[slice, np.ndarray]]:
        """Slices of the rows of ``X``, each with ψ there, shape (·, r)."""
        at = self.kernel.against(self.support_points)
        for rows in row_blocks(X.shape[0], self.T.shape[0], _BLOCK_ELEMENTS):
            psi = at(X[rows]) @ (self.T[1:] if self.constant else self.T)
            yield rows, (psi + self.T[0] if self.constant else psi)

    def same(self, other: Basis) -> bool:
        """Whether this is ψ of the same space."""
        arrays = ((self.support_points, other.support_points), (self.T, other.T))
        return (
            self.kernel == other.kernel
            and self.constant == other.constant
            and all(np.array_equal(a, b) for a, b in arrays)
        )


@dataclass(frozen=True, eq=False)
class BasisSums:
    r"""Σ_i a_i ψ(x_i)ψ(x_i)ᵀ over the basis ψ of a space, and the mass Σ_i a_i: a value that grows
    by chunks and merges, in any order.

    It is a target of :class:`~ksos.functionals.SquaredL2` on that space, where it stands for the
    samples, of mass one: Σ_i a_i p_C(x_i) is ⟨Σ_i a_i ψ_iψ_iᵀ, C⟩. Begin with
    ``BasisSums.of(space)``.

    >>> import ksos
    >>> X = [[-0.5], [0.0], [0.5]]
    >>> space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), X)
    >>> nothing = ksos.functionals.BasisSums.of(space)
    >>> sums = nothing.update(X[:2]).merge(nothing.update(X[2:]))
    >>> objective = ksos.functionals.SquaredL2(sums) + 1e-3 * ksos.functionals.Trace()
    >>> sums.count, ksos.minimize(objective, space).status
    (3, 'solved')
    """

    basis: Basis
    matrix: np.ndarray
    mass: float = 0.0
    count: int = 0

    @classmethod
    def of(cls, space: SoSSpace) -> BasisSums:
        """No samples, on a space without labels."""
        if space.labels is not None:
            raise ValueError(
                "second-order sums are over the basis of a space without labels; use"
                " space.with_labels(None)"
            )
        return cls(Basis.of(space), np.zeros((space.rank, space.rank)))

    @property
    def n_features(self) -> int:
        """d."""
        return int(self.basis.support_points.shape[1])

    @np.errstate(under="ignore")
    def update(self, points: Any, weights: Any = None) -> BasisSums:
        """These sums and those of more samples (n, d) with weights a_i, 1 each by default."""
        X = to_numpy(as_points(points, "points", n_features=self.n_features))
        a = (
            np.ones(X.shape[0])
            if weights is None
            else as_vector(weights, "weights", length=X.shape[0])
        )
        matrix = self.matrix + sum(
            (from_values(psi, a[rows]) for rows, psi in self.basis.blocks(X)),
            np.zeros_like(self.matrix),
        )
        return replace(
            self, matrix=matrix, mass=self.mass + float(a.sum()), count=self.count + X.shape[0]
        )

    def merge(self, other: BasisSums) -> BasisSums:
        """The sums over both sets of samples."""
        if not self.basis.same(other.basis):
            raise ValueError(
                "only second-order sums on the same space add up; begin both with"
                " BasisSums.of(space)"
            )
        return replace(
            self,
            matrix=self.matrix + other.matrix,
            mass=self.mass + other.mass,
            count=self.count + other.count,
        )

    def on(self, space: SoSSpace) -> np.ndarray:
        """Σ_i a_i ψ_iψ_iᵀ of mass one, for the space of the sums and for no other."""
        if space.labels is not None or not self.basis.same(Basis.of(space)):
            raise ValueError(
                "second-order sums know the data only on their own space; begin with"
                " BasisSums.of(space)"
            )
        if not self.mass > 0.0:
            raise ValueError(
                f"the samples of these sums have mass {self.mass:g}; add samples with"
                " update(points)"
            )
        return self.matrix / self.mass

    def __repr__(self) -> str:
        return (
            f"BasisSums({self.count} samples on a basis of {self.matrix.shape[0]} functions,"
            f" kernel={self.basis.kernel!r})"
        )
