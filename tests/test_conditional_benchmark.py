"""The benchmark of conditional densities is right about its data, its scores and its summary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from conditional import contestants, page, work
from conditional.app import plan
from conditional.contestants import CONTESTANTS, NormalLaw, QuantileLaw
from conditional.datasets import DATASETS, NOISES
from quality.records import Key
from quality.summary import cells
from scipy.stats import norm
from sklearn import datasets


@pytest.mark.parametrize("kind", NOISES)
def test_noise_has_mean_zero_and_the_spread_it_says(kind: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.random((200_000, 2))
    noise = NOISES[kind](rng, x)
    assert abs(noise.mean()) < 0.02
    spread = math.sqrt(np.mean((0.2 + 1.6 * x[:, 0]) ** 2)) if kind == "heteroscedastic" else 1.0
    assert noise.std() == pytest.approx(spread, rel=0.15 if kind == "heavy_tailed" else 0.02)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_functions_are_those_of_scikit_learn(number: int) -> None:
    X, y = getattr(datasets, f"make_friedman{number}")(50, random_state=0)
    if number == 1:
        np.testing.assert_allclose(y, _function(1)(X))
    else:
        low, high = (
            np.array([0.0, 40.0 * np.pi, 0.0, 1.0]),
            np.array([100.0, 560.0 * np.pi, 1.0, 11.0]),
        )
        np.testing.assert_allclose(y, _function(number)((X - low) / (high - low)))


def _function(number: int) -> Any:
    from conditional import datasets as ours

    return {1: ours._friedman1, 2: ours._friedman2, 3: ours._friedman3}[number]


def test_splits_share_no_rows_and_repeat() -> None:
    for data in DATASETS.values():
        n = data.sizes[0]
        one, two = data.split(n, 3), data.split(n, 3)
        np.testing.assert_array_equal(one.y, two.y)
        assert one.X.shape[0] == n and one.X_test.shape[0] == one.y_test.shape[0] > 0
        together = np.concatenate([np.c_[one.X, one.y], np.c_[one.X_test, one.y_test]])
        assert data.name == "linnerud" or np.unique(together, axis=0).shape[0] == together.shape[0]


def test_scores_of_a_known_law() -> None:
    """The CRPS of N(0, 1) under itself is 1/√π; nineteen levels come near it."""
    rng = np.random.default_rng(1)
    X, y = np.zeros((200_000, 1)), rng.normal(size=200_000)
    law = NormalLaw(lambda rows: (np.zeros(rows.shape[0]), np.ones(rows.shape[0])))
    found = work.scores(law, X, y, 1.0)
    assert found["crps"] == pytest.approx(1.0 / math.sqrt(math.pi), rel=0.06)
    assert found["coverage"] == pytest.approx(0.9, abs=0.003) and found["crossings"] == 0.0
    assert found["width"] == pytest.approx(2.0 * norm.ppf(0.95))
    assert found["nll"] == pytest.approx(0.5 * math.log(2.0 * math.pi * math.e), abs=0.01)
    doubled = work.scores(
        NormalLaw(lambda rows: (np.zeros(rows.shape[0]), np.full(rows.shape[0], 2.0))),
        X,
        2.0 * y,
        2.0,
    )
    for name in ("crps", "width", "nll", "worst", "coverage"):
        assert doubled[name] == pytest.approx(found[name])


def test_crossings_are_counted() -> None:
    law = QuantileLaw(lambda rows, levels: np.tile(-levels, (rows.shape[0], 1)))
    found = work.scores(law, np.zeros((3, 1)), np.zeros(3), 1.0)
    assert found["crossings"] == 3 * (work.LEVELS.size - 1) and "nll" not in found


def test_a_piece_is_measured_and_a_failure_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    record = work.measure(Key("linnerud", 15, 0, "normal"))
    assert record["targets"] == 3 and record["seconds"] > 0.0 and math.isfinite(record["nll"])

    def fails(*rows: Any) -> Any:
        raise RuntimeError("no such luck")

    monkeypatch.setitem(CONTESTANTS, "fails", contestants.Contestant(fails, "fails", 1.0))
    assert work.measure(Key("linnerud", 15, 0, "fails"))["error"] == "RuntimeError: no such luck"


def test_the_page_counts_who_is_ahead() -> None:
    base = {
        "n": 300,
        "n_train": 300,
        "machine": "m",
        "seconds": 1.0,
        "coverage": 0.9,
        "crossings": 0.0,
        "width": 1.0,
    }
    records = [
        {
            **base,
            "dataset": name,
            "seed": seed,
            "contestant": who,
            "nll": nll,
            "crps": crps,
            "worst": -9.0,
            "conformal_coverage": 0.91,
        }
        for name, lead in (("diabetes", 0.1), ("friedman1_skewed", -0.1))
        for seed in (0, 1)
        for who, nll, crps in (("ksos", 1.0, 0.5), ("ngboost", 1.0 + lead, 0.5 + lead))
    ]
    among = cells(records, DATASETS)
    assert (
        page.ahead(among, ["ngboost"], "nll") == "1 of 2" == page.ahead(among, ["ngboost"], "crps")
    )
    assert page.ahead(among, ["normal"], "nll") == "not measured"
    text = page.page(records)
    assert "| cells with a lower NLL than NGBoost | 1 of 2 |" in text
    assert "0.910" in text and "−9.000" in text and "goal" not in text.lower()


def test_the_plan_leaves_out_what_takes_too_long() -> None:
    keys = plan(["*"], [0], list(CONTESTANTS))
    assert len({(key.dataset, key.n) for key in keys}) == 47
    assert all(key.n <= 300 for key in keys if key.contestant == "ksos_joint")
