"""Least squares with an uncertain parameter: loss against the shift of the test distribution, for ERM and three robust methods.

Ten samples ξ uniform on [−½, ½]; ‖(A_0 + ξA_1)θ − b‖²; tests with ξ uniform on [−½(1+Δ), ½(1+Δ)], Δ = 0, 1, 2, 4. All methods know that ξ
lies in [−2.5, 2.5] and measure MMD with the same kernel; each takes its radius from one grid, by 5-fold cross-validation on the unshifted
samples, or as given. Run again to go on where a run has stopped.

    python experiments/robust_least_squares.py --seeds 100 --out results/robust_least_squares
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np

import ksos
from benchmarks.robust.baselines import UncertainLeastSquares, erm, rkhs_norm, semi_infinite
from ksos.kernels import Gaussian
from ksos.measures import Box

SHIFTS = (0.0, 1.0, 2.0, 4.0)
GRID = (0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
FIXED = 0.1
SIGMA, END, PARAMETERS, SAMPLES, FOLDS = 1.0, 2.5, 10, 10, 5
SUPPORT, LANDMARKS = 41, 25
METHODS = ("erm", "rkhs_norm", "semi_infinite", "ours")
NAMES = {
    "erm": "ERM",
    "rkhs_norm": "RKHS-norm relaxation",
    "semi_infinite": "semi-infinite dual at samples",
    "ours": "sum of squares (ksos)",
}


def problem_of(seed: int) -> tuple[UncertainLeastSquares, np.ndarray, np.random.Generator]:
    """A random problem and its samples."""
    rng = np.random.default_rng(seed)
    scale = 1.0 / np.sqrt(PARAMETERS)
    A0, A1 = scale * rng.normal(size=(PARAMETERS, PARAMETERS)), scale * rng.normal(size=(PARAMETERS, PARAMETERS))
    return UncertainLeastSquares(A0, A1, rng.normal(size=PARAMETERS)), rng.uniform(-0.5, 0.5, SAMPLES), rng


def adversary(xi: np.ndarray) -> ksos.SoSSpace:
    """Densities that are fine beside the kernel of the distance: nearly atoms, on all of the domain."""
    support = np.linspace(-END, END, SUPPORT)[:, None]
    landmarks = np.linspace(-END, END, LANDMARKS)[:, None]
    return ksos.SoSSpace(Gaussian(2.2 * 2 * END / (SUPPORT - 1)), support, Box([-END], [END]), Gaussian(SIGMA), landmarks)


def path(method: str, problem: UncertainLeastSquares, xi: np.ndarray, radii: tuple[float, ...]) -> list[np.ndarray | None]:
    """θ for every radius; None where the ball is empty."""
    if method == "erm":
        return [erm(problem, xi)] * len(radii)
    if method == "rkhs_norm":
        return [rkhs_norm(problem, xi, radius, SIGMA) for radius in radii]
    if method == "semi_infinite":
        zeta = np.random.default_rng(0).uniform(-END, END, 40)
        return [semi_infinite(problem, xi, radius, SIGMA, zeta) for radius in radii]

    def loss(theta: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return problem.losses(theta, X[:, 0]), problem.gradients(theta, X[:, 0])

    def hessian(theta: np.ndarray, X: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return problem.curvature(X[:, 0], weights)

    space = adversary(xi)
    found = ksos.robust_path(loss, erm(problem, xi), xi[:, None], sorted(radii, reverse=True), hessian=hessian, space=space, tol=1e-3)[::-1]
    return [solution.theta if solution.value is not None else None for solution in found]


def chosen(method: str, problem: UncertainLeastSquares, xi: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """θ with the radius that 5 folds of the samples prefer."""
    if method == "erm":
        return erm(problem, xi), 0.0
    order = rng.permutation(xi.shape[0])
    scores = np.zeros(len(GRID))
    for fold in np.array_split(order, FOLDS):
        rest = np.setdiff1d(order, fold)
        for j, theta in enumerate(path(method, problem, xi[rest], GRID)):
            scores[j] += np.inf if theta is None else float(problem.losses(theta, xi[fold]).sum())
    best = int(np.argmin(scores))
    theta = path(method, problem, xi, (GRID[best],))[0]
    return (erm(problem, xi) if theta is None else theta), GRID[best]


def run_seed(seed: int) -> dict[str, Any]:
    """Test losses of every method, by shift, chosen and fixed."""
    problem, xi, _ = problem_of(seed)
    out: dict[str, Any] = {"seed": seed}
    for method in METHODS:
        theta, radius = chosen(method, problem, xi, np.random.default_rng(seed + 10_000))
        fixed = path(method, problem, xi, (FIXED,))[0]
        out[method] = {"radius": radius, "chosen": _tests(problem, theta), "fixed": None if fixed is None else _tests(problem, fixed)}
    return out


def _tests(problem: UncertainLeastSquares, theta: np.ndarray) -> list[float]:
    """E ℓ(θ, ξ) for ξ uniform on ±½(1+Δ): exact, the loss being quadratic in ξ."""
    r0, r1 = problem.A0 @ theta - problem.b, problem.A1 @ theta
    return [float(r0 @ r0 + (r1 @ r1) * (0.5 * (1.0 + shift)) ** 2 / 3.0) for shift in SHIFTS]


def summary(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Means with 95 % confidence intervals, and paired differences to the semi-infinite dual."""
    out: dict[str, Any] = {"seeds": len(records), "shifts": SHIFTS}
    for kind in ("chosen", "fixed"):
        rows = [record for record in records if all(record[method][kind] is not None for method in METHODS)]
        values = {method: np.array([record[method][kind] for record in rows]) for method in METHODS}
        width = 1.96 / np.sqrt(max(len(rows), 1))
        out[kind] = {
            method: {"mean": v.mean(axis=0).tolist(), "interval": (width * v.std(axis=0, ddof=1)).tolist()} for method, v in values.items()
        }
        difference = values["ours"] - values["semi_infinite"]
        out[kind]["ours minus semi_infinite"] = {
            "mean": difference.mean(axis=0).tolist(),
            "interval": (width * difference.std(axis=0, ddof=1)).tolist(),
        }
        out[kind]["seeds"] = len(rows)
    return out


def draw(result: dict[str, Any], out: Path) -> None:
    """Loss against shift, and the worst density of one problem."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(14, 4.2), constrained_layout=True)
    for axis, kind in zip(axes[:2], ("chosen", "fixed"), strict=True):
        for method in METHODS:
            mean, interval = (np.array(result[kind][method][name]) for name in ("mean", "interval"))
            axis.errorbar(SHIFTS, mean, interval, marker="o", capsize=3, label=NAMES[method])
        axis.set(
            xlabel="shift Δ", ylabel="mean test loss", title="radius by 5 folds" if kind == "chosen" else f"radius {FIXED}", yscale="log"
        )
        axis.legend(fontsize=8)
    problem, xi, _ = problem_of(0)

    def loss(theta: np.ndarray, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return problem.losses(theta, X[:, 0]), problem.gradients(theta, X[:, 0])

    grid = np.linspace(-END, END, 500)
    for radius in (0.05, 0.1, 0.4):
        found = ksos.robust_minimize(loss, erm(problem, xi), xi[:, None], radius, embedding_bandwidth=SIGMA, measure=Box([-END], [END]))
        if found.worst_case is not None and found.worst_case.distribution is not None:
            axes[2].plot(grid, found.worst_case.distribution.pdf(grid[:, None]), label=f"radius {radius}")
    axes[2].plot(xi, np.zeros_like(xi), "k|", markersize=14, label="samples")
    axes[2].set(xlabel="ξ", title="the worst density", ylabel="density")
    axes[2].legend(fontsize=8)
    figure.savefig(out / "robust_least_squares.png", dpi=130)


def main() -> None:
    """Run what is missing, then sum up and draw."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("results/robust_least_squares"))
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "records.jsonl"
    records = [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
    done = {record["seed"] for record in records}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        for seed in range(arguments.seeds):
            if seed not in done:
                records.append(run_seed(seed))
                with file.open("a") as stream:
                    stream.write(json.dumps(records[-1]) + "\n")
    result = summary([record for record in records if record["seed"] < arguments.seeds])
    (arguments.out / "summary.json").write_text(json.dumps(result, indent=1))
    for kind in ("chosen", "fixed"):
        print(f"{kind} ({result[kind]['seeds']} seeds), Δ = {SHIFTS}")
        for method, row in result[kind].items():
            if method != "seeds":
                print(f"  {method:26s}", "  ".join(f"{m:9.4f} ± {i:.4f}" for m, i in zip(row["mean"], row["interval"], strict=True)))
    draw(result, arguments.out)


if __name__ == "__main__":
    main()
