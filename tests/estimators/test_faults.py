"""Extreme regimes and faults: bandwidths and scales at the edge of the floats, many features,
limits, Ctrl-C, memory.
"""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

import ksos
from ksos import BandwidthWarning, KernelSoSDensity, Progress
from ksos.functionals import SquaredMMD, Trace
from ksos.ground import resources
from ksos.measures import Box, Discrete
from ksos.solvers import SOLVERS, Auto, Fista, LowRank
from ksos.space import RULES

X = make_moons(60, noise=0.05, random_state=0)[0]
SOURCE = Path(ksos.__file__).resolve().parents[1]


# --- bandwidths and scales at the edge of the floats ---


@pytest.mark.parametrize("sigma", [1e-150, 1e-9, 2e-3])
@pytest.mark.parametrize("support", ["pivoted", "random", "kmeans"])
def test_tiny_bandwidth(support: str, sigma: float) -> None:
    words = (
        "the kernel matrix is close to the identity; rank 60 of 60 was kept; try a larger"
        " bandwidth, or more support points"
    )
    with pytest.warns(
        BandwidthWarning, match=f"the bandwidth {sigma:.4g} is far smaller than .*{words}"
    ):
        est = KernelSoSDensity(bandwidth=sigma, support=support).fit(X)
    # sixty separate bumps of equal weight
    np.testing.assert_allclose(
        est.score_samples(X), -np.log(60) - np.log(np.pi / 2) - 2 * np.log(sigma), rtol=1e-6
    )


@pytest.mark.parametrize("sigma", [30.0, 1e4, 1e10, 1e150])
@pytest.mark.parametrize("support", ["pivoted", "random", "kmeans"])
def test_huge_bandwidth(support: str, sigma: float) -> None:
    with pytest.warns(BandwidthWarning, match="all kernel values are close to 1") as caught:
        est = KernelSoSDensity(bandwidth=sigma, support=support).fit(X)
    rank, m = est.solution_.space.rank, len(est.support_points_)
    assert f"the bandwidth {sigma:.4g} is far larger" in str(
        caught[0].message
    ) and f"rank {rank} of {m} was kept" in str(caught[0].message)
    assert rank <= 8 and est.solution_.status == "solved"
    assert est.distribution_.terms.mass() == pytest.approx(1.0, abs=1e-7)
    assert np.ptp(est.score_samples(X)) < 1.0


def test_warning_of_many_bandwidths_is_short() -> None:
    with pytest.warns(BandwidthWarning, match=r"the bandwidth 0.001 to 0.03 is far smaller"):
        KernelSoSDensity(bandwidth=np.linspace(1e-3, 3e-2, 30)).fit(
            np.random.default_rng(0).normal(size=(8, 30))
        )


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("scale", [1e200, 1e-200, 1e-310])
def test_scales_beyond_the_floats_say_what_to_do(scale: float, rule: str) -> None:
    with pytest.raises(
        ValueError, match=f"bandwidth='{rule}': rescale the data: their bandwidth must lie in"
    ):
        KernelSoSDensity(bandwidth=rule).fit(scale * X)


@pytest.mark.parametrize("rule", RULES)
def test_differences_that_overflow(rule: str) -> None:
    with pytest.raises(
        ValueError,
        match=f"bandwidth='{rule}': differences between the samples overflow; rescale the data",
    ):
        KernelSoSDensity(bandwidth=rule).fit([[1.7e308], [-1.7e308]])


# --- many features, far queries ---


MANY_FEATURES: list[dict[str, Any]] = [
    *(
        {},
        {"bandwidth": "scott"},
        {"bandwidth": 30.0},
        {"regularization": 1e-3},
        {"penalty": "frobenius"},
    ),
    *({"solver": solver} for solver in SOLVERS),
]


@pytest.mark.parametrize("parameters", MANY_FEATURES, ids=str)
def test_784_features(parameters: dict[str, Any]) -> None:
    data = np.random.default_rng(0).normal(size=(30, 784))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", BandwidthWarning)
        est = KernelSoSDensity(**parameters).fit(data)
        check_far_queries(est, data)
    assert est.solution_.status == "solved"
    assert est.distribution_.terms.mass() == pytest.approx(1.0, abs=1e-9)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "matern"])
def test_a_query_far_away(kernel: str) -> None:
    check_far_queries(KernelSoSDensity(kernel=kernel, tol=1e-4).fit(X), X)


def check_far_queries(est: KernelSoSDensity, data: np.ndarray) -> None:
    """Along a ray the log-density falls and never becomes NaN; it may end in −inf, and then the
    density is 0.
    """
    direction = np.ones(data.shape[1]) / np.sqrt(data.shape[1])
    steps = float(np.max(est.bandwidth_)) * np.r_[10.0, 50.0, 1e3, 1e6, 1e12, 1e100, 1e160, 1e300]
    queries = data[0] + steps[:, None] * direction
    scores, densities = est.score_samples(queries), est.distribution_.pdf(queries)
    assert np.all(np.isfinite(est.score_samples(data)))
    assert (
        not np.any(np.isnan(scores))
        and np.all(scores[1:] <= scores[:-1])
        and np.all(np.isfinite(scores[:5]))
    )
    assert not np.any(np.isnan(densities)) and np.all(densities >= 0.0) and densities[-1] == 0.0


# --- limits and Ctrl-C ---


@pytest.mark.parametrize("limit", ["max_iter", "time_limit"])
def test_limits(limit: str) -> None:
    options = {"max_iter": {"solver": Auto(max_iter=3)}, "time_limit": {"time_limit": 1e-6}}
    with pytest.warns(ConvergenceWarning) as caught:
        est = KernelSoSDensity(**options[limit]).fit(X)
    solution = est.solution_
    assert solution.status == limit and solution.gap > 1e-8
    words = str(caught[0].message)
    assert f"gap {solution.gap:.2e}" in words and f"raise {limit} or tol" in words
    assert est.distribution_.terms.mass() == pytest.approx(1.0, abs=1e-9)
    assert np.all(np.isfinite(est.score_samples(X)))


def interrupt_at(iteration: int) -> Any:
    def callback(progress: Progress) -> None:
        if progress.n_iter >= iteration:
            raise KeyboardInterrupt

    return callback


def test_fit_stores_the_best_density_and_raises() -> None:
    est = KernelSoSDensity(solver=Fista(callback=interrupt_at(30)))
    with pytest.raises(KeyboardInterrupt, match="interrupted after 30 iterations, gap"):
        est.fit(X)
    assert est.solution_.status == "interrupted" and est.n_iter_ == 30
    assert est.solution_.gap == pytest.approx(
        min(progress.gap for progress in est.solution_.history), rel=1e-6
    )
    assert est.distribution_.terms.mass() == pytest.approx(1.0, abs=1e-9)
    assert np.all(np.isfinite(est.score_samples(X))) and est.sample(3, random_state=0).shape == (
        3,
        2,
    )
    assert np.all(est.bandwidth_ > 0.0) and est.regularization_ > 0.0


@pytest.mark.parametrize("solver", SOLVERS)
def test_minimize_returns(solver: str) -> None:
    space = ksos.SoSSpace(ksos.kernels.Gaussian(1.0), X)
    solution = ksos.minimize(
        SquaredMMD(X) + 1e-3 * Trace(), space, solver=solver, callback=interrupt_at(1)
    )
    assert solution.status == "interrupted" and solution.n_iter == solution.history[-1].n_iter >= 1
    assert solution.gap == pytest.approx(
        min(progress.gap for progress in solution.history), rel=1e-6
    )
    assert solution.distribution.terms.mass() == pytest.approx(1.0, abs=1e-8)


class Interrupted(Fista):
    def init(self, *_: Any) -> Any:
        raise KeyboardInterrupt


def test_before_the_first_iteration() -> None:
    est = KernelSoSDensity(solver=Interrupted())
    with pytest.raises(KeyboardInterrupt):
        est.fit(X)
    assert (est.solution_.status, est.n_iter_) == ("interrupted", 0)
    assert est.distribution_.terms.mass() == pytest.approx(1.0, abs=1e-9)


def test_a_grid_search_is_stopped() -> None:
    begun = []

    def callback(progress: Progress) -> None:
        begun.append(progress.n_iter)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        GridSearchCV(
            KernelSoSDensity(solver=Auto(callback=callback)), {"bandwidth": [0.5, 1.0, 2.0]}, cv=3
        ).fit(X)
    assert begun == [0], "the first of nine fits was the last"


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process there")
def test_a_real_signal() -> None:
    program = """
import time
import numpy as np
from ksos import KernelSoSDensity
from ksos.solvers import Fista
X = np.random.default_rng(0).normal(size=(60, 2))

def slowly(progress):
    print("running", flush=True)
    time.sleep(0.05)

est = KernelSoSDensity(solver=Fista(max_iter=10**9, callback=slowly), tol=1e-300)
try:
    est.fit(X)
except KeyboardInterrupt:
    good = abs(est.distribution_.terms.mass() - 1.0) < 1e-9, np.isfinite(est.score(X))
    print("interrupted", est.solution_.status, *good)
"""
    command = [
        sys.executable,
        "-c",
        f"import sys; sys.path.insert(0, {str(SOURCE)!r}); {program.strip()}",
    ]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert out.splitlines()[-1] == "interrupted interrupted True True", err
    assert (process.returncode, err) == (0, "")


# --- memory ---


PREDICTED: dict[str, tuple[dict[str, Any], float, str, str]] = {
    "pivoted": (
        {},
        2e4,
        "pivoted Cholesky of 60 points with 60 pivots needs 2.88e-05 GB",
        'use support="random" or "kmeans"',
    ),
    "mass matrix": (
        {"support": "random"},
        1e5,
        "the mass matrix of 60 support points needs 0.000144 GB",
        "use fewer support points",
    ),
    "landmarks": (
        {"support": X[:5], "landmarks": X},
        1e5,
        "the kernel matrix of 60 landmarks needs 0.000115 GB",
        "use fewer landmarks",
    ),
    "pairs": (
        {"support": X[:50]},
        1.2e5,
        "the pair matrices of 50 support points and 50 landmarks needs? 0.00016 GB",
        "use fewer of them",
    ),
    "tensor": (
        {
            "support": X[:50],
            "landmarks": X[:10],
            "measure": Box([-3, -3], [4, 4]),
            "bandwidth": 0.3,
        },
        *(
            2e5,
            "the compressed tensor of 10×50×50 entries needs 0.0004 GB",
            "use fewer support points or landmarks",
        ),
    ),
    "slice": (
        {"support": X[:50], "landmarks": X[:1], "measure": Box([-3, -3], [4, 4]), "bandwidth": 0.1},
        *(
            1.2e5,
            "one slice of the triple integral with m = 50 support points needs 0.00016 GB",
            "use fewer support points",
        ),
    ),
}


@pytest.mark.parametrize("name", PREDICTED)
def test_predicted_before_allocating(name: str) -> None:
    parameters, available, needed, remedy = PREDICTED[name]
    message = f"{needed}, but only {re.escape(f'{available / 1e9:.3g}')} GB are available; {remedy}"
    with resources(memory=available), pytest.raises(MemoryError, match=message):
        KernelSoSDensity(**parameters).fit(X)


def test_nothing_is_allocated() -> None:
    line = np.arange(200_000.0)[:, None]
    rule = (
        Discrete.quadrature,
        (Box([0, 0, 0], [1, 1, 1]), 10_000),
        "a rule with 1e\\+12 nodes needs 3.2e\\+04 GB.*take fewer nodes",
    )
    many = (
        KernelSoSDensity(bandwidth=1.0, support="random", n_support=200_000).fit,
        (line,),
        "the mass matrix of 200000 .*needs 1.6e\\+03 GB",
    )
    for function, arguments, words in (rule, many):
        tracemalloc.start()
        try:
            with pytest.raises(MemoryError, match=words):
                function(*arguments)
            assert tracemalloc.get_traced_memory()[1] < 100e6
        finally:
            tracemalloc.stop()


def test_a_callback_that_stops_the_fit_is_no_keyboard() -> None:
    est = KernelSoSDensity(solver=LowRank(callback=lambda progress: progress.n_iter >= 2)).fit(X)
    assert est.solution_.status == "interrupted" and not est.solution_.keyboard_interrupt
    assert est.distribution_.terms.mass() == pytest.approx(1.0, abs=1e-9)


def test_landmarks_that_do_not_see_the_data() -> None:
    with pytest.warns(UserWarning, match="the landmarks are too far from the samples"):
        KernelSoSDensity(landmarks=X + 1e4).fit(X)


def test_a_support_array_and_a_number_of_support_points() -> None:
    with pytest.raises(
        ValueError, match="n_support is for support points chosen among the samples"
    ):
        KernelSoSDensity(support=X[:5], n_support=3).fit(X)
