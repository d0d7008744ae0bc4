"""What the density, the search and the conditional density refuse: each with a word that helps, and
before any work is done.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from ksos import KernelSoSConditional, KernelSoSDensity, KernelSoSDensityCV
from ksos.choose import Search
from ksos.ground import resources
from ksos.measures import Box

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 2))
Y = X[:, 0] + 0.1 * RNG.normal(size=30)
INSIDE = Box([-9.0, -9.0], [9.0, 9.0])
PAIRED = (
    KernelSoSConditional("joint", estimator=KernelSoSDensity(bandwidth=1.0)),
    KernelSoSConditional("joint"),
)


@pytest.fixture(autouse=True)
def _no_work(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[None]:
    """The search is work, and so is everything for which memory is set aside."""
    if "works" in request.node.name:
        yield
        return

    def work(*arguments: Any, **options: Any) -> None:
        raise AssertionError("work was done before the input was refused")

    monkeypatch.setattr(Search, "run", work)
    with resources(memory=0.0):
        yield


@pytest.mark.parametrize("est", PAIRED)
@pytest.mark.parametrize("targets", [Y[:-1], np.r_[Y, 0.0], np.column_stack([Y, Y])[:7], []])
def test_targets_of_the_wrong_length(est: KernelSoSConditional, targets: Any) -> None:
    with pytest.raises(
        ValueError,
        match=f"X has 30 rows, but y has {len(targets)}; give one target for each row of X",
    ):
        est.fit(X, targets)


@pytest.mark.parametrize("est", [KernelSoSDensity(), KernelSoSDensityCV(), *PAIRED])
@pytest.mark.parametrize(
    "weights",
    [np.ones(29), np.ones((30, 1)), np.zeros(30), np.r_[np.ones(29), -1.0], np.full(30, np.nan)],
)
def test_weights(est: Any, weights: np.ndarray) -> None:
    targets = {"y": Y} if isinstance(est, KernelSoSConditional) else {}
    with pytest.raises(ValueError, match=r"sample_weight|Sample weights"):
        est.fit(X, **targets, sample_weight=weights)


@pytest.mark.parametrize(
    "est", [KernelSoSDensity(measure=INSIDE), KernelSoSDensityCV(measure=INSIDE)]
)
def test_samples_outside_of_the_box(est: Any) -> None:
    data = X.copy()
    data[[4, 17], 1] = 9.5
    with pytest.raises(
        ValueError,
        match=(
            r"2 of 30 samples lie outside Box\(.*; the first is row 4: \[.*, 9.5\]; widen it or"
            r" leave them out"
        ),
    ):
        est.fit(data)


@pytest.mark.parametrize("plain", [True, False])
@pytest.mark.parametrize("target", [True, False])
def test_pairs_outside_of_the_box(plain: bool, target: bool) -> None:
    box, data, targets = Box([-9.0] * 3, [9.0] * 3), X.copy(), Y.copy()
    if target:
        targets[11] = -9.5
    else:
        data[11, 0] = -9.5
    est = (
        KernelSoSConditional("joint", estimator=KernelSoSDensity(measure=box))
        if plain
        else KernelSoSConditional("joint", measure=box)
    )
    with pytest.raises(
        ValueError, match=r"1 of 30 samples lie outside Box\(.*; the first is row 11: "
    ):
        est.fit(data, targets)


def test_identical_columns() -> None:
    twins = X[:, [0, 1, 0]]
    with pytest.raises(
        ValueError,
        match=(
            r"features 0 and 2 are identical in all 30 samples: they have no joint density.*leave"
            r" one of them out"
        ),
    ):
        KernelSoSDensityCV(reference=None).fit(twins)
    with pytest.raises(ValueError, match="features 0 and 2 are identical in all 30 samples"):
        KernelSoSConditional("joint").fit(twins, Y)
    frame = pytest.importorskip("pandas").DataFrame(twins, columns=["a", "b", "c"])
    with pytest.raises(ValueError, match="features 'a' and 'c' are identical"):
        KernelSoSDensityCV(reference=None).fit(frame)


def test_identical_columns_with_a_fixed_bandwidth_works() -> None:
    p = KernelSoSDensity(bandwidth=1.0, tol=1e-5).fit(X[:, [0, 0]]).distribution_
    assert p.terms.mass() == pytest.approx(1.0, abs=1e-7)
    assert np.all(np.isfinite(p.logpdf(X[:, [0, 0]])))


@pytest.mark.parametrize(
    "joint",
    [
        KernelSoSDensity(bandwidth=1.0, tol=1e-5),
        KernelSoSDensityCV([1.0], [0.1], 2, reference=None),
    ],
)
def test_a_target_that_repeats_a_feature_works(joint: Any) -> None:
    est = KernelSoSConditional("joint", estimator=joint).fit(X, X[:, 0])
    assert np.corrcoef(est.predict(X), X[:, 0])[0, 1] > 0.9


def test_constant_columns_works() -> None:
    with pytest.warns(UserWarning, match="no spread"):
        est = KernelSoSDensityCV([1.0], [0.1], cv=2, tol=1e-4).fit(
            np.column_stack([X[:, 0], np.ones(30), np.ones(30)])
        )
    assert np.isfinite(est.best_score_)


@pytest.mark.parametrize("cv", [31, 1, 0, -3, 2.5, "five", []])
def test_folds(cv: Any) -> None:
    with pytest.raises(
        ValueError, match=r"31 folds need at least 31 distinct samples|cv must be|cv gives no folds"
    ):
        KernelSoSDensityCV(cv=cv).fit(X)
    with pytest.raises(
        ValueError, match=r"31 folds need at least 31 distinct samples|cv must be|cv gives no folds"
    ):
        KernelSoSConditional("joint", estimator=KernelSoSDensityCV(cv=cv)).fit(X, Y)


def test_a_single_sample_has_no_folds() -> None:
    with pytest.raises(
        ValueError,
        match=(
            r"2 folds need at least 2 distinct samples of positive weight; got 1 sample;"
            r" .*KernelSoSDensity"
        ),
    ):
        KernelSoSDensityCV(reference=None).fit(X[:1])
    with pytest.raises(
        ValueError,
        match="2 folds need at least 2 distinct samples of positive weight; got 1 sample",
    ):
        KernelSoSConditional("joint").fit(X[:1], Y[:1])


@pytest.mark.parametrize("name", ["bandwidths", "relative_regularizations"])
@pytest.mark.parametrize(
    "grid", [[], [1.0, -1.0], [np.nan], [np.inf], [[1.0, 2.0]], ["a"], "wide", object()]
)
def test_grids(name: str, grid: Any) -> None:
    for fit in (
        lambda est: est.fit(X),
        lambda est: KernelSoSConditional("joint", estimator=est).fit(X, Y),
    ):
        with pytest.raises(ValueError, match=name):
            fit(
                KernelSoSDensityCV(**{name: grid}, reference=None)
            )  # with a reference, λ may be infinite


@pytest.mark.parametrize("bandwidth", [0.0, -1.0, np.nan, [1.0, 2.0, 3.0, 4.0], "wide"])
def test_bandwidths(bandwidth: Any) -> None:
    with pytest.raises(ValueError, match="bandwidth"):
        KernelSoSDensity(bandwidth=bandwidth).fit(X)
    with pytest.raises(ValueError, match="bandwidth"):
        KernelSoSConditional("joint", estimator=KernelSoSDensity(bandwidth=bandwidth)).fit(X, Y)
