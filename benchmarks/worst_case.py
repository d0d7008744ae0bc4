"""The worst case in an MMD ball, beside the same problem through CVXPY and Clarabel, in one run:
python benchmarks/worst_case.py [--m 100].

Two features, the support points on a grid of the box, loss ‖x‖², 100 samples. CVXPY gets the
whitened problem (the compressed tensor, one variable C ⪰ 0 with tr C = 1, one second-order cone);
forming that tensor counts for neither. ``ksos.worst_case`` returns more: the exact MMD, an exactly
feasible density and the bound over all distributions; ``ball`` is the bare problem that Clarabel
solves. Processor time throughout.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from quick import parse, parser_of

import ksos
from ksos.functionals import Expectation
from ksos.kernels import Gaussian
from ksos.measures import Box
from ksos.observables import Polynomial
from ksos.robust import FixedRisk, Goal, Problem, solve

LOSS = Polynomial({(2, 0): 1.0, (0, 2): 1.0})
DOMAIN = Box([-2.0, -2.0], [2.0, 2.0])


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    began = time.process_time()
    out = work()
    return out, time.process_time() - began


def problem(m: int, eta: float, sigma: float) -> tuple[ksos.SoSSpace, np.ndarray, np.ndarray]:
    """The space with its tensor formed, the matrix of the loss, and the data."""
    side = round(m**0.5)
    axis = np.linspace(-2.0, 2.0, side)
    support = np.stack([a.ravel() for a in np.meshgrid(axis, axis, indexing="ij")], axis=1)
    data = np.random.default_rng(0).normal(scale=0.5, size=(100, 2))
    space = ksos.SoSSpace(Gaussian(eta), support, DOMAIN, Gaussian(sigma))
    space.compressed_map.tensor.sum()
    return space, np.asarray(Expectation(LOSS).bind(space).D), data  # type: ignore[attr-defined]


def through_cvxpy(
    space: ksos.SoSSpace, M: np.ndarray, data: np.ndarray, radius: float
) -> tuple[str, float]:
    import cvxpy as cp

    A, z, r = space.compressed_map.tensor, space.coordinates(data), space.rank
    C = cp.Variable((r, r), PSD=True)
    residual = A.reshape(z.shape[0], -1) @ cp.vec(C, order="C") - z
    conic = cp.Problem(
        cp.Maximize(cp.sum(cp.multiply(M, C))), [cp.trace(C) == 1, cp.norm(residual) <= radius]
    )
    conic.solve(solver=cp.CLARABEL)
    return str(conic.status), float(conic.value)


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("--m", type=int, default=100)
    parser.add_argument("--eta", type=float, default=0.7)
    parser.add_argument("--sigma", type=float, default=1.0)
    parser.add_argument("--radius", type=float, nargs="+", default=[0.1, 0.3])
    parser.add_argument("--without-cvxpy", action="store_true")
    options = parse(parser, m=16, without_cvxpy=True)
    space, M, data = problem(options.m, options.eta, options.sigma)
    for radius in options.radius:
        bare = Problem(
            space,
            FixedRisk(M),
            ksos.MeanEmbedding(data, kernel=space.embedding_kernel),
            np.zeros(0),
        )
        ball, ball_seconds = timed(lambda bare=bare, radius=radius: solve(bare, radius, Goal()))
        whole, whole_seconds = timed(
            lambda radius=radius: ksos.worst_case(
                LOSS,
                ksos.Ball(data, radius, kernel=space.embedding_kernel, domain=space.measure),
                space=space,
            )
        )
        row: dict[str, Any] = {
            "m": options.m,
            "r": space.rank,
            "q": space.embedding_rank,
            "radius": radius,
        }
        value, gap = bare.in_units_of_the_loss(ball.point.risk), bare.units[1] * (ball.gap or 0.0)
        row |= {"ball": value, "ball_gap": gap, "ball_seconds": ball_seconds}
        row |= {
            "worst_case": whole.value,
            "gap": whole.gap,
            "upper_bound": whole.upper_bound,
            "worst_case_seconds": whole_seconds,
        }
        if not options.without_cvxpy:
            (status, value), seconds = timed(
                lambda radius=radius: through_cvxpy(space, M, data, radius)
            )
            row |= {"clarabel": value, "clarabel_status": status, "clarabel_seconds": seconds}
            row |= {
                "ball_times_faster": seconds / ball_seconds,
                "worst_case_times_faster": seconds / whole_seconds,
            }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
