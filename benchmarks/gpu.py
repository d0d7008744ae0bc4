"""What the GPU is worth, in one run: solves beside the processor, kernel sums beside bare ones,
samples per second, many support points.

    python benchmarks/gpu.py                                # solve, stream and sample, small
    python benchmarks/gpu.py stream --rows 100_000_000
    python benchmarks/gpu.py solve --sizes 10000 --largest-on-processor 0

Every part prints lines of JSON. "solve": data without rank decay (ten features, bandwidth 2), all m
points are support points and landmarks; times include the mass matrix, the whitening and the kernel
sums. "stream": samples made on the device, chunk by chunk, whose kernel sums at m landmarks are
taken by hand, by ``KernelSums`` in both precisions and by a whole fit; and from the host.
"sample": exact samples of a density of two features and 200 support points.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from quick import parse, parser_of

import ksos
from ksos.functionals import SquaredMMD, Trace
from ksos.ground.arrays import to_device
from ksos.kernels import Gaussian

_BARE_ELEMENTS = 1 << 27
SIGMA = 2.0


def timed(work: Callable[[], Any], device: str) -> tuple[Any, float]:
    """What ``work`` gives, and its seconds until the device has ended."""
    _wait(device)
    began = time.perf_counter()
    out = work()
    _wait(device)
    return out, time.perf_counter() - began


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


def show(**numbers: Any) -> None:
    print(
        json.dumps(
            {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in numbers.items()}
        ),
        flush=True,
    )


# --- solve ---


def solve(X: Any, tol: float, device: str) -> tuple[ksos.Solution, dict[str, float]]:
    space, whitening = timed(lambda: ksos.SoSSpace(Gaussian(SIGMA), X), device)
    _, projection = timed(lambda: space.projection, device)
    functional = SquaredMMD(X) + 1e-3 * Trace(relative=True)
    found, minimizing = timed(lambda: ksos.minimize(functional, space, tol=tol), device)
    return found, {
        "whitening": whitening + projection,
        "minimizing": minimizing,
        "seconds": whitening + projection + minimizing,
    }


def solves(options: argparse.Namespace) -> None:
    tols = (
        options.tol
        if len(options.tol) == len(options.sizes)
        else options.tol[:1] * len(options.sizes)
    )
    for m, tol in zip(options.sizes, tols, strict=True):
        X = np.random.default_rng(0).normal(size=(m, options.features))
        for again in range(2 if m <= options.largest_on_processor else 1):
            found, seconds = solve(to_device(X, options.device), tol, options.device)
            row: dict[str, Any] = {
                "part": "solve",
                "m": m,
                "tol": tol,
                "again": bool(again),
            } | seconds
            row |= {
                "status": found.status,
                "gap": found.gap,
                "objective": found.objective,
                "steps": found.n_iter,
                "squares": found.rank,
            }
            row["space_rank"] = found.space.rank
            if options.device.startswith("cuda"):
                row["gigabytes"] = torch.cuda.max_memory_allocated() / 1e9
            show(**row)
        if m <= options.largest_on_processor:
            reference, there = solve(X, tol, "cpu")
            difference = abs(found.objective - reference.objective) / abs(reference.objective)
            show(
                part="solve",
                m=m,
                processor=there["seconds"],
                ratio=there["seconds"] / seconds["seconds"],
                difference=difference,
            )


# --- stream ---


def generated(options: argparse.Namespace) -> Callable[[], Iterator[torch.Tensor]]:
    """Chunks of samples, made on the device: five clusters."""

    def begin() -> Iterator[torch.Tensor]:
        for start in range(0, options.rows, options.chunk):
            n = min(options.chunk, options.rows - start)
            generator = torch.Generator(options.device).manual_seed(start)
            X = torch.randn(
                (n, options.features),
                generator=generator,
                device=options.device,
                dtype=torch.float64,
            )
            X[:, 0] += 2.0 * (torch.arange(n, device=options.device) % 5)
            yield X

    return begin


def bare(
    chunks: Iterator[torch.Tensor], Z: torch.Tensor, dtype: torch.dtype, block: int = _BARE_ELEMENTS
) -> torch.Tensor:
    """Σ_i k(x_i, z_j) by hand: one product, one exponential in place, one sum per block."""
    total, right = (
        torch.zeros(Z.shape[0], dtype=torch.float64, device=Z.device),
        (Z / SIGMA).to(dtype),
    )
    z2 = torch.sum(right * right, dim=1)
    for X in chunks:
        for x in torch.split((X / SIGMA).to(dtype), max(1, block // Z.shape[0])):
            K = (
                torch.addmm(-z2, x, right.T, beta=1.0, alpha=2.0)
                .sub_(torch.sum(x * x, dim=1)[:, None])
                .exp_()
            )
            total += torch.ones(x.shape[0], dtype=dtype, device=Z.device) @ K
    return total


def streams(options: argparse.Namespace) -> None:
    begin, device = generated(options), options.device
    Z = next(begin())[:: max(1, options.chunk // options.landmarks)][: options.landmarks].clone()
    _, making = timed(lambda: [None for _ in begin()], device)
    bare(iter([Z]), Z, torch.float64)
    solve(Z, 1e-6, device)  # libraries of the device are loaded when they are first used
    sums = {}
    for precision, dtype in (("double", torch.float64), ("single", torch.float32)):
        by_hand, hand = timed(lambda dtype=dtype: bare(begin(), Z, dtype), device)

        def ours(precision: str = precision) -> ksos.KernelSums:
            sums = ksos.KernelSums(Gaussian(SIGMA), Z, precision)
            for X in begin():
                sums = sums.update(X)
            return sums

        sums[precision], seconds = timed(ours, device)
        off = float(torch.max(torch.abs(sums[precision].values - by_hand)) / options.rows)
        show(
            part="stream",
            n=options.rows,
            landmarks=Z.shape[0],
            precision=precision,
            bare=hand,
            sums=seconds,
            ratio=seconds / hand,
            off=off,
            making=making,
        )
    seen = float(torch.max(torch.abs(sums["single"].values - sums["double"].values)) / options.rows)
    show(part="stream", single_error_bound=sums["single"].error, single_error_seen=seen)
    given = {
        "support": Z.cpu().numpy(),
        "kernel": Gaussian(SIGMA),
        "relative_regularization": 1e-3,
        "tol": 1e-6,
    }
    for name, how in (
        ("one pass, points given", given),
        ("two passes", {"n_support": Z.shape[0], "kernel": Gaussian(SIGMA), "tol": 1e-6}),
    ):
        fit, seconds = timed(
            lambda how=how: ksos.KernelSoSDensity(**how, random_state=0).fit(ksos.chunks(begin)),
            device,
        )
        show(
            part="fit",
            how=name,
            n=options.rows,
            m=int(fit.support_points_.shape[0]),
            seconds=seconds,
            gap=fit.solution_.gap,
            status=fit.solution_.status,
            minimizing=fit.solution_.time,
        )
    host = [X.cpu().numpy() for _, X in zip(range(4), begin(), strict=False)]
    n = sum(X.shape[0] for X in host)
    pageable, slow = timed(lambda: [to_device(X, device) for X in host], device)
    del pageable

    def from_host() -> ksos.KernelSums:
        sums = ksos.KernelSums(Gaussian(SIGMA), Z)
        for chunk in ksos.chunks(host).to(device):
            sums = sums.update(chunk.data)
        return sums

    _, seconds = timed(from_host, device)
    show(
        part="stream",
        host_rows=n,
        pageable_copy=slow,
        copied_and_summed=seconds,
        rows_per_second=n / seconds,
    )


# --- sample ---


def samples(options: argparse.Namespace) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2)) @ np.array([[1.0, 0.4], [0.0, 0.6]]) + rng.integers(
        0, 3, size=(20_000, 1)
    )
    p = ksos.KernelSoSDensity(n_support=200, random_state=0).fit(X).distribution_
    q = p.to(options.device)
    for size in options.samples:
        q.rvs(min(size, 1000), rng=0)
        x, seconds = timed(lambda size=size: q.rvs(size, rng=1), options.device)
        error = float(np.abs(x.mean(dim=0).cpu().numpy() - p.mean()).max() * np.sqrt(size))
        show(
            part="sample",
            size=size,
            m=p.support_points.shape[0],
            squares=p.rank,
            seconds=seconds,
            per_second=size / seconds,
            scaled_error=error,
        )


PARTS = {"solve": solves, "stream": streams, "sample": samples}


def main() -> None:
    parser = parser_of(__doc__)
    parser.add_argument("parts", nargs="*", help=f"some of {', '.join(PARTS)}; default: all")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000])
    parser.add_argument("--tol", type=float, nargs="+", default=[1e-6])
    parser.add_argument(
        "--largest-on-processor",
        type=int,
        default=1000,
        help="sizes above this run on the device alone",
    )
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--chunk", type=int, default=4_000_000)
    parser.add_argument("--landmarks", type=int, default=1000)
    parser.add_argument("--samples", type=int, nargs="+", default=[1_000_000])
    options = parse(
        parser, device="cpu", sizes=[40], rows=4000, chunk=2000, landmarks=20, samples=[500]
    )
    to_device(np.zeros(1), options.device) @ to_device(np.zeros(1), options.device)  # wake it up
    for part in options.parts or PARTS:
        PARTS[part](options)


if __name__ == "__main__":
    main()
