"""What a worst case says is true of its density, wherever the data lie and however little
quadrature knows of the loss.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from oracles import quadrature_rule
from sklearn.exceptions import ConvergenceWarning
from tables import points

import ksos
from ksos.exceptions import InternalError
from ksos.kernels import Gaussian
from ksos.measures import Box, Discrete
from ksos.observables import Observable, Polynomial, coordinate

X = np.random.default_rng(0).normal(scale=0.5, size=(40, 1))
BALL: dict[str, Any] = {"kernel": Gaussian(1.0), "domain": Box([-2.0], [2.0])}
N_SUPPORT = 20


@pytest.mark.parametrize("center", [10.0, 2010.0, 1e4])
def test_far_from_the_origin_everything_is_as_at_the_origin(center: float) -> None:
    """Value, bounds and density of (x − c)² for data around c are those of x² for the same data
    around 0.
    """
    X = (np.clip(points(30, 1), -2.0, 2.0) + center) - center
    here = ksos.worst_case(
        coordinate(0) ** 2,
        ksos.Ball(X, 0.2, kernel=Gaussian(1.0), domain=Box([-2.0], [2.0])),
        n_support=64,
    )
    domain = Box([center - 2.0], [center + 2.0])
    there = ksos.worst_case(
        (coordinate(0) - center) ** 2,
        ksos.Ball(X + center, 0.2, kernel=Gaussian(1.0), domain=domain),
        n_support=64,
    )
    assert there.status == "solved" and there.upper_bound_kind == "rigorous"
    assert there.value == pytest.approx(
        here.value, abs=1e-6
    ) and there.upper_bound == pytest.approx(here.upper_bound, abs=1e-3)
    nodes, w = quadrature_rule(
        there.distribution.kernel, Box([-2.0], [2.0]), there.distribution.support_points - center
    )
    assert w @ (there.distribution.pdf(nodes + center) * nodes[:, 0] ** 2) == pytest.approx(
        there.value, abs=1e-7
    )
    square = ksos.functionals.Expectation(coordinate(0) ** 2)
    constrained = ksos.minimize(
        ksos.functionals.SquaredMMD(X + center),
        there.space,
        square <= (center - 0.1) ** 2,
        tol=1e-6,
    )
    assert constrained.status == "solved" and constrained.violation <= 1e-11
    reached = w @ (constrained.distribution.pdf(nodes + center) * (nodes[:, 0] + center) ** 2)
    assert (
        reached <= (center - 0.1) ** 2 + 1e-10 * center**2 and reached >= (center - 0.1) ** 2 - 0.1
    )


@pytest.mark.parametrize(
    "loss",
    [lambda Y: 1.0 / (Y[:, 0] - 0.3), lambda Y: 1e6 * ((Y[:, 0] > 0.3) & (Y[:, 0] < 0.3001))],
    ids=["pole", "peak"],
)
def test_what_quadrature_does_not_know_of_a_loss_counts(loss: Any) -> None:
    with pytest.warns(
        ConvergenceWarning,
        match=(
            "solved_inaccurate.*closed forms, such as ksos.observables.BoxIndicator.*fewer columns"
        ),
    ):
        worst = ksos.worst_case(
            loss,
            ksos.Ball(
                np.clip(points(20, 1), -2.0, 2.0),
                0.2,
                kernel=Gaussian(1.0),
                domain=Box([-2.0], [2.0]),
            ),
        )
    assert worst.status == "solved_inaccurate" and worst.integration_error > 1.0
    assert worst.gap >= 2.0 * worst.integration_error and worst.dual_value == pytest.approx(
        worst.value + worst.gap
    )
    assert worst.upper_bound >= worst.value and "the integrals are known to" in worst.message


def test_a_bound_below_what_a_density_has_reached_is_no_answer() -> None:
    class Liar(Observable):
        """The constant 1 where it is integrated, −5 where it is asked for its values."""

        def __call__(self, X: Any) -> np.ndarray:
            return np.full(self._points(X).shape[0], -5.0)

        def _matrix(self, *args: Any) -> Any:
            return Polynomial.constant(1.0)._matrix(*args)

    with pytest.raises(InternalError, match="which a density has reached"):
        ksos.worst_case(Liar(), ksos.Ball(X, 0.3, **BALL), lipschitz=0.0, n_support=N_SUPPORT)


@pytest.mark.filterwarnings("ignore:the loss:UserWarning")
@pytest.mark.parametrize(
    ("loss", "kind"),
    [(lambda Y: np.abs(Y[:, 0]), "infinite"), (lambda Y: np.tanh(Y[:, 0]), "estimate")],
    ids=["abs", "tanh"],
)
def test_a_loss_that_grows_without_end_has_no_bound_on_the_line(loss: Any, kind: str) -> None:
    worst = ksos.worst_case(loss, ksos.Ball(X, 0.2, kernel=Gaussian(1.0)), n_support=12)
    assert worst.upper_bound_kind == kind and (worst.upper_bound == np.inf) == (kind == "infinite")
    # what atoms attain far beyond the densities
    far = Discrete(np.linspace(-15.0, 15.0, 121)[:, None])
    atoms = ksos.worst_case(loss, ksos.Ball(X, 0.2, kernel=Gaussian(1.0), domain=far))
    assert atoms.value is not None and atoms.value <= worst.upper_bound


def _distance(theta: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.abs(theta - Y)[:, 0], np.sign(theta - Y)


def _with_a_peak(theta: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return np.sum((theta - Y) ** 2, axis=1) + 1e4 * ((Y[:, 0] > 0.3) & (Y[:, 0] < 0.3001)), 2.0 * (
        theta - Y
    )


@pytest.mark.filterwarnings("ignore:robust_minimize. :sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    ("loss", "status"),
    [(_distance, "solved"), (_with_a_peak, "solved_inaccurate")],
    ids=["kink", "peak"],
)
def test_what_the_nodes_of_a_learner_miss_counts(loss: Any, status: str) -> None:
    """Kinks get the nodes that they need; where none are enough, gap and status say so. A finer
    rule agrees with the value.
    """
    found = ksos.robust_minimize(
        loss, 0.1, ksos.Ball(X[:20], 0.2, **BALL), alpha=1e-3, n_support=10
    )
    assert found.status == status and 0.0 < 2.0 * found.integration_error <= found.gap
    assert ("the integrals are known to" in found.note) == (status == "solved_inaccurate")
    p = found.worst_case.distribution
    edges = np.unique(np.r_[np.linspace(-2.0, 2.0, 400), found.theta, 0.3, 0.3001])
    x, w = np.polynomial.legendre.leggauss(12)
    half, middle = 0.5 * np.diff(edges), 0.5 * (edges[1:] + edges[:-1])
    nodes, weights = (
        (middle[:, None] + half[:, None] * x).reshape(-1, 1),
        (half[:, None] * w).ravel(),
    )
    risk = weights @ (p.pdf(nodes) * loss(found.theta, nodes)[0]) + 1e-3 * float(
        found.theta @ found.theta
    )
    assert found.value - found.gap - 1e-7 <= risk <= found.value + 1e-9
