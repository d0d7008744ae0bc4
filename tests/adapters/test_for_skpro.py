"""skpro's own checks pass on our classes, and its answers are ours."""

from __future__ import annotations

import builtins
import doctest
import re
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

import ksos
from ksos import adapters

pytest.importorskip("skpro", reason="skpro is not installed; it needs pandas below 3.1")

CLASSES = ["KernelSoSDistribution", "KernelSoSDistFitter", "KernelSoSProbaRegressor"]


@pytest.fixture(scope="module")
def data() -> tuple[Any, Any]:
    pandas = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X = pandas.DataFrame(rng.uniform(-1.0, 1.0, size=(120, 2)), columns=["a", "b"])
    X.index = np.arange(120)[::-1]
    y = X[["a"]].rename(columns={"a": "target"}) + 0.3 * rng.normal(size=(120, 1))
    return X, y


@pytest.fixture(scope="module", params=[None, "asinh", "joint"])
def fitted(request: pytest.FixtureRequest, data: tuple[Any, Any]) -> Any:
    conditional = (
        ksos.KernelSoSConditional("joint", estimator=ksos.KernelSoSDensity(n_support=50, tol=1e-4))
        if request.param == "joint"
        else ksos.KernelSoSConditional(LinearRegression(), given=None, transform=request.param)
    )
    return adapters.KernelSoSProbaRegressor(conditional).fit(*data)


# its tests warn of methods that are estimated, and of pandas
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CLASSES)
def test_skpros_own_checks_pass(name: str) -> None:
    from skpro.utils import check_estimator

    results = check_estimator(getattr(adapters, name), verbose=False)
    assert len(results) > 30
    assert {check: found for check, found in results.items() if found != "PASSED"} == {}


def test_predictions_are_those_of_the_conditional_density(fitted: Any, data: Any) -> None:
    X, y = data
    est, p = fitted.conditional_, fitted.predict_proba(X)
    at = y["target"].to_numpy()

    def same(frame: Any, expected: np.ndarray) -> None:
        assert frame.index.equals(X.index)
        np.testing.assert_allclose(frame.to_numpy()[:, 0], expected, rtol=0.0, atol=1e-9)

    mean, std = est.predict(X, return_std=True)
    same(fitted.predict(X), mean)
    same(fitted.predict_var(X), std**2)
    same(p.log_pdf(y), est.score_samples(X, at))
    same(p.pdf(y), est.pdf(X, at))
    same(p.cdf(y), est.cdf(X, at))
    same(p.energy(y) - 0.5 * p.energy(), est.crps(X, at))
    levels = [0.05, 0.5, 0.95]
    quantiles = est.predict_quantile(X, levels)
    np.testing.assert_allclose(fitted.predict_quantiles(X, alpha=levels), quantiles, atol=1e-9)
    interval = fitted.predict_interval(X, coverage=0.9)
    np.testing.assert_allclose(interval, est.predict_interval(X, 0.9), atol=1e-9)
    np.testing.assert_allclose(p.ppf(p.cdf(y)).to_numpy()[:, 0], at, atol=1e-6)


def test_skpros_metrics_are_our_scores(fitted: Any, data: Any) -> None:
    from skpro.metrics import CRPS, LogLoss

    (X, y), est = data, fitted.conditional_
    p = fitted.predict_proba(X)
    at = y["target"].to_numpy()
    assert CRPS()(y, p) == pytest.approx(est.crps(X, at).mean(), abs=1e-9)
    assert LogLoss()(y, p) == pytest.approx(-est.score(X, at), abs=1e-9)


def test_energies_are_those_of_samples(fitted: Any, data: Any) -> None:
    X, y = data
    p = fitted.predict_proba(X[:3])
    np.random.seed(0)
    draws = p.sample(4000).to_numpy().reshape(4000, 3)
    np.random.seed(0)
    np.testing.assert_array_equal(p.sample(4000).to_numpy().reshape(4000, 3), draws)
    apart = np.abs(draws[:2000] - draws[2000:])
    near = np.abs(draws - y.to_numpy()[:3, 0])
    for found, samples in ((p.energy(), apart), (p.energy(y[:3]), near)):
        error = samples.std(axis=0) / np.sqrt(len(samples))
        assert np.all(np.abs(found.to_numpy()[:, 0] - samples.mean(axis=0)) < 5.0 * error)


def test_rows_keep_their_distributions(fitted: Any, data: Any) -> None:
    X, y = data
    p = fitted.predict_proba(X)
    some = X.index[[7, 3]]
    np.testing.assert_allclose(p.loc[some].cdf(y.loc[some]), p.cdf(y).loc[some], atol=1e-12)
    one = p.loc[some[0], "target"]
    assert one.ndim == 0 and one.mean() == pytest.approx(p.mean().loc[some[0], "target"])


def test_the_fitter_gives_the_certified_density() -> None:
    y = np.random.default_rng(0).gamma(3.0, size=150)
    fitter = adapters.KernelSoSDistFitter().fit(y)
    p, q = fitter.proba(), fitter.estimator_.distribution_.by_volume()
    assert fitter.estimator_.solution_.status == "solved"
    assert p.log_pdf(2.0) == pytest.approx(q.logpdf(2.0), abs=1e-12)
    assert p.cdf(2.0) == pytest.approx(q.cdf(2.0), abs=1e-12)
    assert p.ppf(0.3) == pytest.approx(q.ppf(0.3), abs=1e-12)
    assert p.energy(2.0) - 0.5 * p.energy() == pytest.approx(q.crps(2.0), abs=1e-12)
    assert p.mean() == pytest.approx(q.mean()[0]) and p.var() == pytest.approx(q.cov()[0, 0])
    with pytest.raises(ValueError, match="X must have one column"):
        adapters.KernelSoSDistFitter().fit(np.zeros((5, 2)))


@pytest.mark.parametrize("name", CLASSES)
def test_examples(name: str) -> None:
    """Those of the docstrings, which are skipped where skpro may be absent."""
    text = re.sub(r" +# doctest: \+SKIP", "", getattr(adapters, name).__doc__)
    scope = {**vars(builtins), "np": np, **{one: getattr(adapters, one) for one in CLASSES}}
    test = doctest.DocTestParser().get_doctest(text, scope, name, None, 0)
    assert test.examples and doctest.DocTestRunner().run(test).failed == 0
