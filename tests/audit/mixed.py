"""Densities and fits of mixed tables, judged by enumeration of levels and quadrature over a grid.

Kernels, normal densities and sums are the referee's own. Of a fit it takes what defines the
problem, the reference, the kernel, the support points and T, and what the solution claims.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

import numpy as np

from audit.referee import Finding
from ksos import mmd
from ksos.density import Column, Columns, Correction, MixedReference, MixedTerms, TableDensity
from ksos.kernels import Gaussian
from ksos.solvers import fit_to_cells
from ksos.space import MixedSpace

LEVELS = (2, 3)
GRID = {1: np.linspace(-16.0, 16.0, 1601), 2: np.linspace(-14.0, 14.0, 141)}
"""Far enough for 1e-14 of the mass, and so fine that the trapezoid rule rounds and nothing else."""
_TOLERANCE = 1e-9


class Table:
    """ρ and (1, φ) at all nodes and levels, whole, (levels, nodes) and (levels, nodes, 1 + m)."""

    def __init__(self, reference: Any, correction: Any) -> None:
        d, q = reference.shape
        axis = GRID[d]
        grids = np.meshgrid(*[axis] * d, indexing="ij")
        self.nodes = np.stack([grid.ravel() for grid in grids], axis=1)
        self.codes = np.array(list(itertools.product(*map(range, LEVELS[:q]))))
        self.step, self.axis = float(axis[1] - axis[0]), axis
        away = self.nodes[:, None, :] - correction.points
        k = np.exp(-np.einsum("nmi,ij,nmj->nm", away, np.linalg.inv(correction.metric), away))
        self.rho = np.zeros((self.codes.shape[0], self.nodes.shape[0]))
        self.phi = np.ones((*self.rho.shape, 1 + k.shape[1]))
        for row, levels in enumerate(self.codes):
            for c, w in enumerate(reference.weights):
                x, V = self.nodes - reference.means[c], reference.covariances[c]
                log = -0.5 * np.einsum("ni,ij,nj->n", x, np.linalg.inv(V), x)
                chance = math.prod(p[c, b] for p, b in zip(reference.chances, levels, strict=True))
                unit = w * chance / math.sqrt(np.linalg.det(2.0 * math.pi * V))
                self.rho[row] += unit * np.exp(log)
            same = np.where(levels == correction.codes, 1.0, correction.thetas).prod(axis=1)
            self.phi[row, :, 1:] = k * same

    def cells(self, u: np.ndarray, c: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
        """Levels and nodes that agree with the observed cells of a row; the volume of a node."""
        seen = ~np.isnan(u)
        rows = np.all((c < 0) | (self.codes == c), axis=1)
        columns = np.all(np.abs(self.nodes[:, seen] - u[seen]) < 1e-9, axis=1)
        return rows, columns, self.step ** int(np.sum(~seen))

    def moments(self, u: np.ndarray, c: np.ndarray) -> np.ndarray:
        """∫ ρ (1, φ)(1, φ)ᵀ over the missing cells of a row."""
        rows, columns, volume = self.cells(u, c)
        phi, rho = self.phi[rows][:, columns], self.rho[rows][:, columns]
        return np.asarray(volume * np.einsum("an,anp,anq->pq", rho, phi, phi))


def random_problem(rng: np.random.Generator) -> tuple[MixedReference, dict[str, np.ndarray]]:
    d, K, m = int(rng.integers(1, 3)), int(rng.integers(1, 4)), int(rng.integers(1, 7))
    roots = 0.5 * rng.normal(size=(K, d, d))
    covariances = roots @ roots.transpose(0, 2, 1) + 0.3 * np.eye(d)
    chances = tuple(rng.dirichlet(np.ones(n), K) for n in LEVELS)
    root = 0.7 * rng.normal(size=(d, d))
    reference = MixedReference(
        rng.dirichlet(np.ones(K)), rng.normal(size=(K, d)), covariances, chances
    )
    return reference, {
        "metric": root @ root.T + np.eye(d),
        "thetas": rng.uniform(0.0, 0.95, 2),
        "points": rng.normal(size=(m, d)),
        "codes": np.stack([rng.integers(n, size=m) for n in LEVELS], axis=1),
    }


def random_rows(rng: np.random.Generator, d: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Cells on the grid, a third of them missing, at least one in each row observed."""
    near = GRID[d][np.abs(GRID[d]) < 1.5]
    u, c = rng.choice(near, (n, d)), np.stack([rng.integers(k, size=n) for k in LEVELS], axis=1)
    u[rng.random(u.shape) < 0.35] = np.nan
    c[:, :1][rng.random((n, 1)) < 0.35] = -1
    return u, c


def mixed(seed: int) -> list[Finding]:
    """Questions to a random density, and the certificate of a fit to incomplete rows."""
    rng = np.random.default_rng([40, seed])
    reference, kernel = random_problem(rng)
    d, m = reference.shape[0], kernel["points"].shape[0]
    name, out = f"mixed table {seed}: d={d} m={m}", []

    def judge(what: str, claims: Any, truths: Any, tol: float = _TOLERANCE) -> None:
        for claim, truth in zip(np.ravel(claims), np.ravel(truths), strict=True):
            if not abs(claim - truth) <= tol * max(1.0, abs(truth)):
                out.append(Finding(name, what, float(claim), float(truth)))

    p = MixedTerms.of(
        reference,
        Correction(**kernel, factor=rng.normal(size=(m, 2)), constant=rng.normal(size=2)),
    )
    table, one = Table(reference, p.correction), p.correction
    G = np.concatenate([one.constant[None], one.factor])
    density = table.rho * np.sum((table.phi @ G) ** 2, axis=2)
    u, c = random_rows(rng, d, 6)
    judge("mass", density.sum() * table.step**d, 1.0)
    truths = [np.sum((G @ G.T) * table.moments(*row)) for row in zip(u, c, strict=True)]
    judge("density of observed cells", np.exp(p.log_density(u, c)), truths)
    mean = p.conditional_means(u, c)
    variance = p.conditional_means(u, c, dict.fromkeys(range(d), (np.square, 513))) - mean**2
    for i in range(u.shape[0]):
        rows, columns, _ = table.cells(u[i], c[i])
        left, x = density[rows][:, columns], table.nodes[columns]
        weights = left.sum(axis=0) / left.sum()
        judge("conditional mean", mean[i], weights @ x)
        judge("conditional variance", variance[i], weights @ (x - weights @ x) ** 2)
        every = np.array([left[table.codes[rows, 0] == b].sum() for b in range(LEVELS[0])])
        if c[i, 0] < 0:
            judge("posterior", p.posterior(u[[i]], c[[i]], 0)[0], every / every.sum())
    # distances, with a kernel of width one and 1/2 between levels
    other = replace(p.correction, constant=p.correction.constant + 0.5, factor=-p.correction.factor)
    q = MixedTerms.of(reference, other)
    G = np.concatenate([q.correction.constant[None], q.correction.factor])
    away = (density - table.rho * np.sum((table.phi @ G) ** 2, axis=2)).reshape(
        [-1, *[table.axis.size] * d]
    )
    same = np.where(table.codes[:, None] == table.codes, 1.0, 0.5).prod(axis=2)
    smooth = np.tensordot(same, away, axes=1)
    for k in range(1, d + 1):
        K = np.exp(-((table.axis[:, None] - table.axis) ** 2))
        smooth = np.moveaxis(np.tensordot(K, smooth, axes=(1, k)), 0, k)
    listed = [Column(f"x{k}", "numeric") for k in range(d)]
    listed += [Column(f"c{n}", "categorical", levels=tuple("abc"[:n])) for n in LEVELS]
    columns = Columns(tuple(listed))
    pair = (TableDensity(columns, [(1.0, terms)]) for terms in (p, q))
    square = float(np.vdot(away, smooth)) * table.step ** (2 * d)
    judge("squared MMD", mmd(*pair, kernel=Gaussian(1.0)) ** 2, square)
    # the certificate
    space = MixedSpace(reference, **kernel)
    u, c = random_rows(rng, d, 25)
    strength = 10.0 ** rng.uniform(-3.0, 0.0)
    solution = fit_to_cells(space, u, c, np.full(25, 0.04), strength, 1e-7)
    q = solution.distribution
    G = np.concatenate([q.correction.constant[None], q.correction.factor])
    nothing = np.full(d, np.nan), np.full(2, -1)
    W = table.moments(*nothing)
    M = [table.moments(*row) for row in zip(u, c, strict=True)]
    M = [one / one[0, 0] for one in M]
    away = one.points[:, None, :] - one.points
    D = np.zeros(W.shape)
    D[1:, 1:] = np.exp(-np.einsum("nmi,ij,nmj->nm", away, np.linalg.inv(one.metric), away))
    for j, theta in enumerate(one.thetas):
        D[1:, 1:] *= np.where(one.codes[:, j, None] == one.codes[:, j], 1.0, theta)
    D *= strength
    B = G @ G.T
    values = np.array([np.sum(B * one) for one in M])
    judge("mass of the fit", np.sum(B * W), 1.0)
    judge("objective", solution.objective, np.sum(B * D) - np.mean(np.log(values)), 1e-8)
    slope = D - sum(one / value for one, value in zip(M, values, strict=True)) / 25.0
    gap = np.sum(slope * B) - np.linalg.eigvalsh(space.T.T @ slope @ space.T)[0]
    if solution.gap is None or gap > solution.gap + 1e-8:
        out.append(Finding(name, "gap", float(solution.gap or 0.0), float(gap)))
    return out
