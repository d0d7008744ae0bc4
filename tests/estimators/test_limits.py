"""Limits of a whole fit: the time, Ctrl-C and callbacks that raise, in the density, the search and
the conditional density.
"""

from __future__ import annotations

import contextlib
import time
import warnings
from typing import Any

import numpy as np
import pytest
from interrupting import Interrupting
from sklearn.datasets import make_moons
from sklearn.exceptions import ConvergenceWarning

from ksos import KernelSoSConditional, KernelSoSDensity, KernelSoSDensityCV, Progress
from ksos.solvers import STATUSES, Auto, Fista

X = np.random.default_rng(0).normal(size=(300, 3)) + np.array([[0.0], [3.0]])[np.arange(300) % 2]
MOONS = make_moons(80, noise=0.1, random_state=0)[0]
ONE_STEP = 3.0  # seconds of the processor that building a space and one step of a solver may take


def check_density(est: Any, data: np.ndarray) -> None:
    assert est.distribution_.terms.mass() == pytest.approx(1.0, abs=1e-7)
    assert np.all(np.isfinite(est.score_samples(data))) and est.sample(3, random_state=0).shape == (
        3,
        data.shape[1],
    )


@pytest.mark.parametrize("objective", ["likelihood", "squared_mmd"])
@pytest.mark.parametrize("limit", [1e-6, 0.03])
def test_the_time_limit_of_a_density_counts_the_whole_fit(objective: str, limit: float) -> None:
    est, began = (
        KernelSoSDensity(objective=objective, tol=1e-15, time_limit=limit),
        time.process_time(),
    )
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        est.fit(X)
    assert time.process_time() - began < limit + ONE_STEP
    assert est.solution_.status == "time_limit" and est.solution_.gap > 1e-15
    check_density(est, X)


@pytest.mark.parametrize("objective", ["likelihood", "squared_mmd"])
@pytest.mark.parametrize("limit", [1e-6, 0.3, 1.0])
def test_the_time_limit_of_a_search_counts_the_whole_fit(objective: str, limit: float) -> None:
    est, began = (
        KernelSoSDensityCV(objective=objective, reference=None, tol=1e-12, time_limit=limit),
        time.process_time(),
    )
    with warnings.catch_warnings(
        record=True
    ) as caught:  # its last fit may say that it has reached what rounding allows
        warnings.simplefilter("always")
        est.fit(X)
    assert time.process_time() - began < limit + ONE_STEP
    assert all(issubclass(warning.category, ConvergenceWarning) for warning in caught)
    assert est.status_ == "time_limit" and est.solution_.status in STATUSES
    assert any("raise time_limit" in str(warning.message) for warning in caught)
    check_density(est, X)
    unscored = ~np.isfinite(est.cv_results_["mean_test_score"])
    assert unscored.any() and (est.best_score_ == -np.inf) == bool(unscored.all())
    assert est.best_params_["relative_regularization"] in est.cv_results_["relative_regularization"]


def test_a_search_with_time_enough_is_the_search_without_a_limit() -> None:
    grids: dict[str, Any] = {
        "bandwidths": [0.4, 0.8],
        "relative_regularizations": [1.0, 0.1],
        "cv": 3,
    }
    free, limited = (
        KernelSoSDensityCV(**grids, time_limit=limit).fit(MOONS) for limit in (None, 600.0)
    )
    assert free.best_score_ == limited.best_score_
    np.testing.assert_array_equal(free.score_samples(MOONS), limited.score_samples(MOONS))
    assert free.status_ == limited.status_ == "solved"


def test_the_time_limit_of_a_conditional_density_is_that_of_its_estimator() -> None:
    began = time.process_time()
    with pytest.warns(ConvergenceWarning, match="time"):
        est = KernelSoSConditional("joint", time_limit=0.3).fit(X[:, :2], X[:, 2])
    assert time.process_time() - began < 0.3 + ONE_STEP
    assert est.estimator_.status_ == "time_limit" and np.all(np.isfinite(est.predict(X[:5, :2])))
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        est = KernelSoSConditional(
            "joint", estimator=KernelSoSDensity(tol=1e-15), time_limit=1e-6
        ).fit(X[:, :2], X[:, 2])
    assert est.estimator_.solution_.status == "time_limit" and np.isfinite(
        est.score(X[:, :2], X[:, 2])
    )


@pytest.mark.parametrize("limit", [0.0, -1.0, np.nan, "soon"])
def test_limits_that_are_none(limit: Any) -> None:
    for est in (KernelSoSDensity(time_limit=limit), KernelSoSDensityCV(time_limit=limit)):
        with pytest.raises((TypeError, ValueError), match="time_limit"):
            est.fit(MOONS)
    with pytest.raises((TypeError, ValueError), match="time_limit"):
        KernelSoSConditional("joint", time_limit=limit).fit(MOONS[:, :1], MOONS[:, 1])


@pytest.mark.parametrize("objective", ["likelihood", "squared_mmd"])
def test_ctrl_c_in_a_search_stores_the_best_so_far(objective: str) -> None:
    grids: dict[str, Any] = {
        "bandwidths": [1.0, 1.4, 2.0],
        "relative_regularizations": [1.0, 0.1],
        "cv": 3,
    }
    est = KernelSoSDensityCV(**grids, objective=objective, reference=None, verbose=1)
    with pytest.raises(KeyboardInterrupt), contextlib.redirect_stdout(Interrupting(2)):
        est.fit(MOONS)
    compared = np.isfinite(est.cv_results_["mean_test_score"])
    assert est.status_ == "interrupted" and np.isfinite(est.best_score_)
    assert set(est.cv_results_["bandwidth_multiple"][compared]) == {
        1.4,
        2.0,
    }, "wide ones come first"
    check_density(est, MOONS)


def raises(error: type[BaseException], iteration: int) -> Any:
    def callback(progress: Progress) -> None:
        if progress.n_iter >= iteration:
            raise error("enough")

    return callback


def test_ctrl_c_in_a_conditional_density_stores_the_best_so_far() -> None:
    est = KernelSoSConditional(
        "joint", estimator=KernelSoSDensity(solver=Fista(callback=raises(KeyboardInterrupt, 20)))
    )
    with pytest.raises(KeyboardInterrupt):
        est.fit(MOONS[:, :1], MOONS[:, 1])
    assert est.estimator_.solution_.status == "interrupted" and np.isfinite(
        est.score(MOONS[:, :1], MOONS[:, 1])
    )


@pytest.mark.parametrize("error", [RuntimeError, ZeroDivisionError, SystemExit])
def test_what_a_callback_raises_passes_through(error: type[BaseException]) -> None:
    with pytest.raises(error, match="enough"):
        KernelSoSDensity(solver=Auto(callback=raises(error, 1))).fit(MOONS)
    with pytest.raises(error, match="enough"):
        KernelSoSConditional(
            "joint", estimator=KernelSoSDensity(solver=Auto(callback=raises(error, 1)))
        ).fit(MOONS[:, :1], MOONS[:, 1])


@pytest.mark.parametrize("objective", ["squared_mmd", "likelihood"])
def test_a_short_limit_leaves_support_points_out_and_says_so(objective: str) -> None:
    samples = np.random.default_rng(4).normal(size=(400, 2))
    whole = KernelSoSDensity(bandwidth=0.4, objective=objective, solver=Auto(max_iter=1))
    short = KernelSoSDensity(bandwidth=0.4, objective=objective, time_limit=1e-6)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        whole.fit(samples)
    with pytest.warns(ConvergenceWarning) as told:
        short.fit(samples)
    assert all(warning.filename == __file__ for warning in told), (
        "a warning names the line of the caller"
    )
    m = short.support_points_.shape[0]
    assert any(
        f"the density has {m} of them; allow more time" in str(warning.message) for warning in told
    )
    assert 32 <= m < whole.support_points_.shape[0]
    assert (
        short.solution_.status == "time_limit"
        and short.distribution_.terms.mass() == pytest.approx(1.0, abs=1e-9)
    )
    assert objective != "likelihood" or np.all(np.isfinite(short.score_samples(samples)))
