"""Random problems from seeds, kernels × measures × objectives × constraints × solvers × data, and
what the referee has against them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import ksos
from audit.ball import CONIC_DIGITS, Ball
from audit.referee import (
    LONG,
    Claims,
    Finding,
    Referee,
    Term,
    density,
    distance,
    kernel_matrix,
    rule_of,
)
from ksos.functionals import (
    MMD,
    Expectation,
    Frobenius,
    NegativeLogLikelihood,
    SquaredMMD,
    Trace,
    within,
)
from ksos.kernels import Gaussian, Laplace, Matern
from ksos.measures import Box, Discrete, Lebesgue, Normal
from ksos.observables import coordinate

KERNELS: dict[str, Any] = {
    "gaussian": Gaussian,
    "laplace": lambda sigma: Laplace(sigma, product=True),
    "matern32": lambda sigma: Matern(1.5, sigma, product=True),
    "matern52": lambda sigma: Matern(2.5, sigma, product=True),
}
DATA = ("clustered", "normal", "duplicated", "equal", "far", "weighted", "signed")
SOLVERS = ("auto", "low_rank", "interior_point", "lbfgs", "fista", "frank_wolfe")


@contextmanager
def loud() -> Iterator[None]:
    """A RuntimeWarning is a finding; what users are told is not."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        warnings.simplefilter("ignore", UserWarning)
        yield


def samples(kind: str, n: int, d: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Samples in [−2, 2]^d with weights."""
    X, a = rng.normal(scale=0.7, size=(n, d)), np.full(n, 1.0 / n)
    if kind == "clustered":
        X = np.where(rng.random((n, 1)) < 0.5, -1.0, 1.0) + rng.choice(
            [0.01, 0.05, 0.3], size=(n, 1)
        ) * rng.normal(size=(n, d))
    elif kind == "duplicated":
        X = X[rng.integers(0, max(n // 3, 1), n)]
    elif kind == "equal":
        X = np.repeat(X[:1], n, axis=0)
    elif kind == "far":
        X[0] = 1.9
    elif kind == "weighted":
        a = rng.exponential(size=n) ** 2
    elif kind == "signed":
        a = a + rng.normal(scale=0.3 / n, size=n)
    return np.clip(X, -2.0, 2.0), a / a.sum()


def measure_of(kind: str, d: int, rng: np.random.Generator) -> Any:
    box = Box([-2.0] * d, [2.0] * d)
    return {
        "lebesgue": Lebesgue,
        "box": lambda: box,
        "normal": lambda: Normal([0.0] * d, [1.5] * d),
        "quadrature": lambda: Discrete.quadrature(box, 50 if d == 1 else 18),
        "atoms": lambda: Discrete(rng.uniform(-2.0, 2.0, (60, d)), rng.uniform(0.5, 1.5, 60)),
    }[kind]()


def minimize(seed: int) -> list[Finding]:
    """One random problem of ksos.minimize, solved or left half-way."""
    rng = np.random.default_rng([17, seed])
    d, name = int(rng.choice([1, 1, 1, 2])), str(rng.choice(list(KERNELS)))
    kind = str(
        rng.choice(
            ["lebesgue", "box", "quadrature", "atoms"] + (["normal"] if name == "gaussian" else [])
        )
    )
    # in the plane the referee has nodes for discrete measures only
    d = d if kind in ("quadrature", "atoms") else 1
    n, data = int(rng.integers(3, 25 if d == 1 else 13)), str(rng.choice(DATA))
    X, a = samples(data, n, d, rng)
    kernel = KERNELS[name](float(np.exp(rng.uniform(math.log(0.3), math.log(1.5)))))
    measure = measure_of(kind, d, rng)
    distance = str(
        rng.choice(
            ["squared_mmd", "squared_mmd", "mmd"] + ([] if data == "signed" else ["likelihood"])
        )
    )
    strength = (
        float(rng.choice([0.0, 1e-6, 1e-4, 1e-2]))
        if distance != "likelihood"
        else float(rng.choice([1e-3, 1e-1]))
    )
    penalty = str(rng.choice(["trace", "trace", "frobenius"]))
    target = ksos.MeanEmbedding(X, a, kernel=kernel)
    functional: Any = (
        NegativeLogLikelihood(X, a)
        if distance == "likelihood"
        else (MMD if distance == "mmd" else SquaredMMD)(target)
    )
    terms: list[Term] = [(distance, 1.0, (X, a))]
    if strength > 0.0:
        functional = functional + strength * (Trace if penalty == "trace" else Frobenius)()
        terms.append((penalty, strength, None))
    solver = str(rng.choice(SOLVERS))
    if solver == "interior_point" and (
        distance != "squared_mmd" or (strength > 0.0 and penalty == "frobenius")
    ):
        solver = "auto"
    steps = None if rng.random() < 0.8 else int(rng.integers(1, 6))
    label = (
        f"minimize {seed}: {name} {kind} d={d} n={n} {data} {distance} {penalty}={strength:g}"
        f" {solver} max_iter={steps}"
    )
    promised = 1e-5 if distance == "likelihood" else 1e-8  # without a tolerance of the user's
    tol = None if rng.random() < 0.5 else 1e-8
    with loud():
        solution = ksos.minimize(
            functional,
            ksos.SoSSpace(kernel, X, measure),
            solver=solver,
            tol=tol,
            max_iter=steps,
            time_limit=20.0,
        )
    verdict = Referee(solution, terms).verdict()
    return verdict.against(
        Claims.of(solution), f"{label} tol={tol}", promised if tol is None else tol
    )


def constrained(seed: int) -> list[Finding]:
    """One random constrained problem, judged against a conic solver on the matrices of the
    referee.
    """
    import cvxpy as cp

    rng = np.random.default_rng([18, seed])
    name, kind = (
        str(rng.choice(["gaussian", "laplace", "matern52"])),
        str(rng.choice(["box", "quadrature", "lebesgue"])),
    )
    data = str(rng.choice(DATA))
    X, a = samples(data, int(rng.integers(2, 12)), 1, rng)
    kernel = KERNELS[name](float(rng.uniform(0.4, 1.2)))
    space = ksos.SoSSpace(kernel, X, measure_of(kind, 1, rng), tol_model=1e-8, tol_embedding=1e-8)
    target, wanted = (
        ksos.MeanEmbedding(X, a, kernel=kernel),
        str(rng.choice(["ball", "mean", "both", "idle"])),
    )
    bound, radius = (
        float(a @ X[:, 0]) + float(rng.uniform(-0.2, 0.2)),
        float(rng.choice([0.05, 0.2, 0.6])),
    )
    fitted, in_a_ball, of_a_mean = (
        wanted in ("mean", "idle"),
        wanted in ("ball", "both"),
        wanted in ("mean", "both"),
    )
    functional = (
        SquaredMMD(target) if fitted else Expectation(coordinate(0) ** 2)
    ) + 1e-3 * Trace()
    constraints = [within(MMD(target), radius)] if in_a_ball else []
    constraints += [Expectation(coordinate(0)) <= bound] if of_a_mean else []
    constraints += [Expectation(coordinate(0)) <= 1e3] if wanted == "idle" else []
    label = f"constrained {seed}: {name} {kind} {data} n={X.shape[0]} {wanted}"
    with loud():
        solution = ksos.minimize(functional, space, constraints, time_limit=30.0)
    judge = Referee(solution, [])
    x, masses = judge.rule.nodes[:, 0], judge.rule.weights * judge.p
    A = np.stack([judge.matrix(c) for c in (judge.seen @ judge.S.T).T]).astype(float)
    z = (judge.S @ (np.asarray(a, LONG) @ kernel_matrix(kernel, X, judge.Z))).astype(float)
    M1, M2, N = (judge.matrix(f).astype(float) for f in (x, x * x, np.ones_like(x)))
    D = 1e-3 * (judge.T.T @ judge.K @ judge.T / judge.unit).astype(float)
    C = cp.Variable(N.shape, PSD=True)
    residual = cp.hstack([cp.trace(A[k] @ C) for k in range(A.shape[0])]) - z
    objective = cp.trace(D @ C) + (cp.sum_squares(residual) if fitted else cp.trace(M2 @ C))
    given = (
        [cp.trace(N @ C) == 1]
        + ([cp.norm(residual) <= radius] if in_a_ball else [])
        + ([cp.trace(M1 @ C) <= bound] if of_a_mean else [])
    )
    problem = cp.Problem(cp.Minimize(objective), given)
    try:
        problem.solve(solver="CLARABEL")
    except cp.SolverError:
        return []
    solved, optimum = (
        solution.status == "solved",
        math.inf if problem.value is None else float(problem.value),
    )
    if solution.status == "infeasible":
        return (
            [Finding(label, "infeasible, but there is an optimum", math.inf, optimum)]
            if problem.status == "optimal"
            else []
        )
    if problem.status == "infeasible" and solved:
        return [Finding(label, "solved, but infeasible", solution.objective, math.inf)]
    if problem.status != "optimal":
        return []
    out, slack = [], CONIC_DIGITS * max(1.0, abs(optimum))
    away, mean = (
        float(np.linalg.norm((judge.S @ (masses @ judge.seen)).astype(float) - z)),
        float(masses @ x),
    )
    if in_a_ball and solved and away > radius * (1 + 1e-6) + 1e-7:
        out.append(Finding(label, "outside of its ball", radius, away))
    if of_a_mean and solved and mean > bound + 1e-6:
        out.append(Finding(label, "violates its mean", bound, mean))
    if solution.gap is not None and solution.objective - solution.gap > optimum + slack:
        out.append(
            Finding(
                label,
                f"lower bound above the optimum, {solution.status}",
                solution.objective - solution.gap,
                optimum,
            )
        )
    if solved and abs(solution.objective - optimum) > slack:
        out.append(Finding(label, "solved, but not the optimum", solution.objective, optimum))
    return out


def worst_case(seed: int) -> list[Finding]:
    """One random worst case on the line, solved or left half-way, judged by quadrature, by atoms,
    and by a conic solver in its space.
    """
    rng = np.random.default_rng([19, seed])
    X, a = samples(
        str(rng.choice(["clustered", "normal", "duplicated", "weighted"])),
        int(rng.integers(3, 20)),
        1,
        rng,
    )
    shift = float(rng.choice([0.0, 0.0, 10.0, 2010.0, 1e4]))
    sigma, radius = float(rng.uniform(0.5, 1.5)), float(rng.choice([0.1, 0.3, 0.6]))
    x0 = coordinate(0) - shift
    losses: dict[str, tuple[Any, Any]] = {
        "square": (x0**2, lambda x: (x - shift) ** 2),
        "linear": (coordinate(0), lambda x: x),
        "cubic": (x0**3 - 2.0 * x0, lambda x: (x - shift) ** 3 - 2 * (x - shift)),
        "wave": (lambda Y: np.sin(3.0 * (Y[:, 0] - shift)), lambda x: np.sin(3 * (x - shift))),
    }
    which = str(rng.choice(list(losses)))
    loss, truth = losses[which]
    label = (
        f"worst case {seed}: {which} shift={shift:g} n={X.shape[0]} radius={radius:g}"
        f" sigma={sigma:.2f}"
    )
    data, rtol = (
        ksos.MeanEmbedding(X + shift, a, kernel=Gaussian(sigma)),
        float(rng.choice([1e-8, 1e-8, 1e-2])),
    )
    with loud():
        worst = ksos.worst_case(
            loss,
            ksos.Ball(data, radius, domain=Box([shift - 2.0], [shift + 2.0])),
            rtol=rtol,
            time_limit=60.0,
        )
    return _judged(worst, truth, data, f"{label} rtol={rtol:g}", rtol)


def _judged(
    worst: Any, truth: Any, data: Any, label: str, rtol: float | None = None
) -> list[Finding]:
    """A worst case on a box of the line: its value, its exact MMD, its bounds, and with the digits
    asked for its status.
    """
    if worst.value is None:
        return []
    p, radius, kernel = worst.distribution, worst.radius, data.kernel
    rule = rule_of(p, kernel)
    x, masses = rule.nodes, rule.weights * density(p, rule.nodes)
    mmd, value = (
        distance(kernel, masses, x, data.weights, data.points),
        float(masses @ truth(x[:, 0])),
    )
    scale, out = max(1.0, abs(value)), []
    if abs(mmd - worst.mmd) > 1e-7:
        out.append(Finding(label, "exact MMD", worst.mmd, mmd))
    if mmd > radius + 1e-7:
        out.append(Finding(label, "outside of the exact ball", radius, mmd))
    if abs(value - worst.value) > 1e-7 * scale + worst.integration_error:
        out.append(Finding(label, f"value, {worst.status}", worst.value, value))
    if worst.upper_bound is not None and value > worst.upper_bound + 1e-7 * scale:
        out.append(
            Finding(
                label,
                f"{worst.upper_bound_kind} bound below its own density",
                worst.upper_bound,
                value,
            )
        )
    if (
        worst.upper_bound_kind == "rigorous"
        and (atoms := _worst_atoms(p.measure, kernel, data, truth, radius))
        > worst.upper_bound + 1e-6 * scale
    ):
        out.append(Finding(label, "rigorous bound below atoms", worst.upper_bound, atoms))
    if abs(worst.gap - (worst.dual_value - worst.value)) > 1e-12 * scale:
        out.append(
            Finding(
                label,
                "the gap is not dual value − value",
                worst.gap,
                worst.dual_value - worst.value,
            )
        )
    best, slack = (
        Ball(worst, data, radius).worst([truth]),
        CONIC_DIGITS * scale + worst.integration_error,
    )  # NaN refutes nothing
    if worst.dual_value < best - slack:
        out.append(
            Finding(
                label,
                f"dual value below a density in the ball, {worst.status}",
                worst.dual_value,
                best,
            )
        )
    spread = float(np.ptp(truth(x[:, 0])))
    if rtol is not None and worst.status == "solved" and value < best - slack - rtol * spread:
        out.append(Finding(label, "solved, but not the worst density", value, best))
    return out


def _worst_atoms(box: Box, kernel: Any, data: Any, truth: Any, radius: float) -> float:
    """The worst distribution in the ball whose atoms lie on a grid, by a conic solver; −∞ if it
    does not say.
    """
    import cvxpy as cp

    atoms, points = (
        np.linspace(float(box.low[0]), float(box.high[0]), 81)[:, None],
        np.asarray(data.points, float),
    )
    both = np.concatenate([atoms, points])
    values, vectors = np.linalg.eigh(kernel_matrix(kernel, both, both).astype(float))
    root = vectors * np.sqrt(np.clip(values, 0.0, None))
    q = cp.Variable(81, nonneg=True)
    difference = root[:81].T @ q - root[81:].T @ np.asarray(data.weights, float)
    objective = np.asarray(truth(atoms[:, 0]), float)
    problem = cp.Problem(
        cp.Maximize(objective @ q), [cp.sum(q) == 1, cp.norm(difference) <= radius]
    )
    try:
        problem.solve(solver="CLARABEL")
    except cp.SolverError:
        return -math.inf
    return float(problem.value) if problem.status == "optimal" else -math.inf


def robust_fit(seed: int) -> list[Finding]:
    """One random robust location: min over θ of the worst expected loss ℓ(x − θ), with ℓ a square
    or a smooth distance.
    """
    from scipy.optimize import minimize_scalar

    rng = np.random.default_rng([21, seed])
    X, a = samples(
        str(rng.choice(["clustered", "normal", "duplicated", "weighted", "far"])),
        int(rng.integers(3, 15)),
        1,
        rng,
    )
    sigma, radius, ridge = (
        float(rng.uniform(0.5, 1.5)),
        float(rng.choice([0.1, 0.3, 0.6])),
        float(rng.choice([0.0, 0.1])),
    )
    squared = bool(rng.random() < 0.5)

    def truth(theta: float, x: np.ndarray) -> np.ndarray:
        return (x - theta) ** 2 if squared else np.sqrt(1 + (x - theta) ** 2)

    def loss(theta: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        away = theta[0] - Y[:, 0]
        values = np.asarray(truth(theta[0], Y[:, 0]), float)
        return values, (2.0 * away if squared else away / values)[:, None]

    rtol = float(rng.choice([1e-6, 1e-2]))
    label = (
        f"robust fit {seed}: {'square' if squared else 'distance'} n={X.shape[0]} radius={radius:g}"
        f" sigma={sigma:.2f} ridge={ridge:g}"
    )
    label, data = f"{label} rtol={rtol:g}", ksos.MeanEmbedding(X, a, kernel=Gaussian(sigma))
    with loud():
        found = ksos.robust_minimize(
            loss,
            [0.0],
            ksos.Ball(data, radius, domain=Box([-2.0], [2.0])),
            alpha=ridge,
            rtol=rtol,
            time_limit=60.0,
            n_support=24,
        )
    if found.value is None or found.worst_case is None or found.worst_case.distribution is None:
        return []
    theta, p = float(found.theta[0]), found.worst_case.distribution
    out = _judged(found.worst_case, lambda x: truth(theta, x), data, label)
    rule = rule_of(p, data.kernel)
    x, masses = rule.nodes[:, 0], rule.weights * density(p, rule.nodes)

    def risk(t: float) -> float:
        return float(masses @ truth(t, x)) + ridge * t * t

    least = float(
        minimize_scalar(risk, bounds=(-2.0, 2.0), method="bounded", options={"xatol": 1e-10}).fun
    )
    slack = CONIC_DIGITS * max(1.0, abs(found.value)) + found.integration_error
    if risk(theta) > found.value + slack:
        out.append(
            Finding(
                label,
                f"the worst risk is exceeded by its own density, {found.status}",
                found.value,
                risk(theta),
            )
        )
    if found.worst_case.dual_value + ridge * theta**2 > found.value + slack:
        out.append(
            Finding(
                label,
                "two bounds of one risk",
                found.value,
                found.worst_case.dual_value + ridge * theta**2,
            )
        )
    if found.gap is None:
        return out
    if found.value - found.gap > least + slack and found.worst_case.note == "":
        out.append(
            Finding(
                label,
                f"no density proves the lower bound, {found.status}",
                found.value - found.gap,
                least,
            )
        )
    if (
        found.status == "solved"
        and found.gap > rtol * max(abs(found.value), 1e-3 * float(np.ptp(truth(theta, x)))) + slack
    ):
        out.append(Finding(label, "solved, but the gap", found.gap, rtol * abs(found.value)))
    parameters = np.concatenate([np.linspace(-2.0, 2.0, 9), theta + np.linspace(-0.05, 0.05, 11)])
    risks = [lambda x, t=t: truth(t, x) + ridge * t * t for t in parameters]
    if (
        found.value - found.gap
        > (best := Ball(found.worst_case, data, radius).worst(risks)) + slack
        and found.worst_case.note == ""
    ):
        out.append(
            Finding(
                label,
                f"lower bound above the least worst risk, {found.status}",
                found.value - found.gap,
                best,
            )
        )
    return out
