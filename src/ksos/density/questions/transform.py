"""Densities made from one: that of Ax + b, and the product with a Gaussian (Bayes' rule)."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from ksos.density.corrected import Corrected
from ksos.density.normals import times_normal
from ksos.density.square import NoMass, Square, assemble
from ksos.density.standard import kernel_image
from ksos.density.terms import Part, Term, Terms, each
from ksos.exceptions import IntegralNotAvailableError
from ksos.kernels import Gaussian
from ksos.measures import Discrete

_LARGEST_LOG = 600.0  # beyond e^600 times the heaviest atom's weight, the density has underflown


def affine(p: Terms, A: np.ndarray, b: np.ndarray) -> Terms:
    """The density of Ax + b."""
    terms = [(w, _affine(term, A, b)) for w, term in p.weighted]
    if len(terms) == 1 and terms[0][1].measure.atoms is not None:
        return Terms(terms, terms[0][1].measure)
    return Terms(terms, p.measure.linear_image(A, b))


def _affine(term: Term, A: np.ndarray, b: np.ndarray) -> Term:
    if isinstance(term, Corrected):
        d, shown = term.joint.n_features, term.shown
        whole, shift = np.eye(d), np.zeros(d)
        whole[np.ix_(shown, shown)], shift[shown] = A, b
        joint, S = term.joint, whole @ term.correction.metric @ whole.T
        moved = replace(
            joint,
            kernel=Gaussian(0.5 * (S + S.T)),
            support_points=joint.support_points @ whole.T + shift,
            measure=joint.measure.linear_image(whole, shift),
        )
        return replace(term, joint=moved)
    scale = np.diagonal(A)
    diagonal = np.array_equal(A, np.diag(scale))

    def image(points: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", invalid="ignore"):
            found = scale * points + b if diagonal else points @ A.T + b
        if not np.all(np.isfinite(points) <= np.isfinite(found)):
            raise ValueError(
                "scale and shift must leave the points within the range of floating-point numbers;"
                " use smaller ones"
            )
        return found

    measure = term.measure.image(image, scale) if diagonal else term.measure.linear_image(A, b)
    kernel, points = kernel_image(term.kernel, A), image(term.support_points)
    return assemble(kernel, points, measure, term.unit_factor)[1]


def times_gaussian(p: Terms, mean: np.ndarray, root: np.ndarray) -> Terms:
    """p(x)·exp(−½‖root·(x − mean)‖²), scaled to mass one; raises NoMass."""
    terms = each(p.parts, lambda term: [_times_gaussian(term, mean, root)])
    return Terms(terms, p.measure if p.measure.atoms is None else terms[0][1].measure)


def _times_gaussian(term: Term, mean: np.ndarray, root: np.ndarray) -> Part:
    """(log ∫ p g, p g scaled to mass one); raises NoMass."""
    if isinstance(term, Corrected):
        return _corrected_times(term, mean, root.T @ root)
    if isinstance(term.kernel, Gaussian):
        return _square_times(term, mean, root)
    if (atoms := term.measure.atoms) is None:
        raise IntegralNotAvailableError(
            f"the product of a density with {term.kernel!r} and a Gaussian has no closed form"
            f" on {term.measure!r}; use the Gaussian kernel, or a discrete measure such as"
            " Discrete.quadrature(box, …)"
        )
    with np.errstate(divide="ignore"):
        logs = np.log(term.node_masses()) + _exponent(atoms.points, mean, root)
    return float(np.logaddexp.reduce(logs)), _on_atoms(term, mean, root)


@np.errstate(over="ignore")
def _exponent(X: np.ndarray, mean: np.ndarray, root: np.ndarray) -> np.ndarray:
    """−½‖root·(x − mean)‖²."""
    return -0.5 * np.sum(((X - mean) @ root.T) ** 2, axis=1)


def _corrected_times(
    p: Corrected, mean: np.ndarray, precision: np.ndarray
) -> tuple[float, Corrected]:
    d = p.joint.n_features
    whole, center = np.zeros((d, d)), np.zeros(d)
    whole[np.ix_(p.shown, p.shown)], center[p.shown] = precision, mean
    log_mass, measure = times_normal(p.all_normals, center, whole)
    new = replace(p.joint, measure=measure)
    if not (mass := new.mass()) > 0.0:
        raise NoMass
    found = replace(p, joint=new.scaled_to_one(mass))
    return log_mass + math.log(mass) + found.log_inside - p.log_inside, found


def _square_times(p: Square, mean: np.ndarray, root: np.ndarray) -> Part:
    r"""Each function is multiplied by the root of the Gaussian, exp(−‖½root·(x − mean)‖²).

    With S = LLᵀ, R = ½root and LᵀRᵀRL = QE²Qᵀ, the product is a kernel of metric LQ(I + E²)⁻¹QᵀLᵀ
    at x̃ − LQ·(E²/(I + E²))·u for u = QᵀL⁻¹(x̃ − mean), times exp(−‖v‖²) with
    v = E/(I + E²)^{1/2}·u. Where nothing correlates the features, L is diagonal and Q = I.
    """
    X, d = p.support_points, p.n_features
    apart = not p.kernel.full and np.array_equal(root, np.diag(np.diagonal(root)))
    if apart:
        sigma = p.kernel.sigma_vector(d)
    else:
        L = np.linalg.cholesky(p.kernel.matrix(d))
        values, Q = np.linalg.eigh((0.5 * root @ L).T @ (0.5 * root @ L))
        axes = L @ Q

    def along(away: np.ndarray) -> np.ndarray:
        return away / sigma if apart else np.linalg.solve(axes, away.T).T

    with np.errstate(over="ignore", under="ignore", divide="ignore"):
        E = 0.5 * sigma * np.diagonal(root) if apart else np.sqrt(np.maximum(values, 0.0))
        stretch = np.hypot(1.0, E)
        near, far = E / stretch, 1.0 / stretch  # of which the squares add up to one
        u = along(X - mean)
        squares = np.sum((near * u) ** 2, axis=1)
        nearest = int(np.argmin(squares))
        # squares would lose the digits of their differences when the mean is far away
        steps, sums = near * along(X - X[nearest]), near * (u + u[nearest])
        log_rows = -np.sum(steps * np.where(steps == 0.0, 0.0, sums), axis=1)
    if apart:
        moved = np.where(E < 1.0, X - near**2 * (X - mean), mean + far**2 * (X - mean))
        kernel = kernel_image(p.kernel, np.diag(far))
    else:
        moved, kernel = X - (near**2 * u) @ axes.T, kernel_image(Gaussian(far), axes)
    log_mass, found = assemble(kernel, moved, p.measure, p.unit_factor, log_rows)
    return log_mass - 2.0 * float(squares[nearest]) - p.log_unit, found


def _on_atoms(p: Square, mean: np.ndarray, root: np.ndarray) -> Square:
    """Any kernel on a discrete measure: the Gaussian goes into the weights of the atoms."""
    atoms = p.measure.atoms
    assert atoms is not None
    with np.errstate(over="ignore", under="ignore"):
        log_likelihood = _exponent(atoms.points, mean, root)
        log_mass = log_likelihood + p.logpdf(atoms.points)
        if not np.any(np.isfinite(log_mass)):
            raise NoMass
        log_peak = log_likelihood[int(np.argmax(log_mass))]  # at the heaviest atom the weight stays
        weights = atoms.weights * np.exp(np.minimum(log_likelihood - log_peak, _LARGEST_LOG))
    alive = weights > 0.0
    measure = Discrete(atoms.points[alive], weights[alive])
    return assemble(p.kernel, p.support_points, measure, p.unit_factor)[1]
