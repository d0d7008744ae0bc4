"""scikit-learn's callbacks see what a fit does, if its version has them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import sklearn
from sklearn.base import clone
from sklearn.linear_model import LinearRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import ksos

HAVE_THEM = tuple(map(int, sklearn.__version__.split(".")[:2])) >= (1, 9)
since = pytest.mark.skipif(not HAVE_THEM, reason="callbacks are new in scikit-learn 1.9")

FITS: dict[str, Any] = {
    "density": lambda: ksos.KernelSoSDensity(tol=1e-4),
    "anomalies": lambda: ksos.KernelSoSDensity(tol=1e-4, contamination=0.1),
    "search": lambda: ksos.KernelSoSDensityCV(cv=2),
    "conditional": lambda: ksos.KernelSoSConditional(LinearRegression(), given=None, cv=2),
}


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 1))
    return X, X[:, 0] + rng.normal(size=80)


class Recorder:
    """A callback that remembers what it is told."""

    max_propagation_depth = None

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def setup(self, estimator: Any, context: Any) -> None:
        self.events.append(("setup", context.task_name, type(estimator).__name__))

    def teardown(self, estimator: Any, context: Any) -> None:
        self.events.append(("teardown", context.task_name, type(estimator).__name__))

    def on_fit_task_begin(self, estimator: Any, context: Any) -> None:
        self.events.append(("begin", context.task_name, type(estimator).__name__))

    def on_fit_task_end(self, estimator: Any, context: Any) -> bool:
        self.events.append(("end", context.task_name, type(estimator).__name__))
        return False


@since
@pytest.mark.parametrize("name", FITS)
def test_a_fit_is_a_task_and_what_it_does_are_subtasks(name: str) -> None:
    est, recorder = FITS[name](), Recorder()
    est.set_callbacks(recorder).fit(*data())
    kinds = [kind for kind, _, _ in recorder.events]
    assert kinds[:2] == ["setup", "begin"] and kinds[-2:] == ["end", "teardown"]
    assert kinds.count("setup") == 1 and kinds.count("begin") == kinds.count("end") >= 2
    assert {own for _, _, own in recorder.events} == {type(est).__name__}
    again = FITS[name]().fit(*data())
    ask = "predict" if name == "conditional" else "score_samples"
    X = data()[0]
    np.testing.assert_array_equal(getattr(est, ask)(X), getattr(again, ask)(X))
    assert not [key for key in vars(est) if "callback_fit" in key or "teardown" in key]
    pickle.loads(pickle.dumps(clone(again)))


@since
def test_callbacks_of_a_pipeline_reach_its_last_step() -> None:
    recorder = Recorder()
    pipe = make_pipeline(StandardScaler(), ksos.KernelSoSDensity(tol=1e-4))
    pipe.set_callbacks(recorder).fit(data()[0])
    assert "KernelSoSDensity" in {own for _, _, own in recorder.events}


@since
def test_a_fit_that_raises_ends_its_callbacks() -> None:
    recorder = Recorder()
    est = ksos.KernelSoSDensity(tol=-1.0).set_callbacks(recorder)
    with pytest.raises(ValueError, match="tol"):
        est.fit(data()[0])
    assert recorder.events[-1][0] == "teardown"


@pytest.mark.skipif(HAVE_THEM, reason="scikit-learn has callbacks")
def test_without_callbacks_there_is_no_trace_of_them() -> None:
    assert not any("callback" in name for name in dir(ksos.KernelSoSDensityCV()))
