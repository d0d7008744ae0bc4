"""The mixture that BIC chooses: the right one where the truth is a mixture, and its share beside a stack."""

from __future__ import annotations

import numpy as np
import pytest

from ksos import KernelSoSDensityCV
from ksos._deadline import Deadline
from ksos.estimators._mixture_stack import SIZES, MixtureStack
from ksos.estimators._parsimony import chosen_by_bic, held_out_of, posterior_share
from ksos.estimators._samples import random_folds


def stack_of(points: np.ndarray) -> MixtureStack:
    n = points.shape[0]
    weights = np.full(n, 1.0 / n)
    points = (points - points.mean(axis=0)) / points.std(axis=0)
    out = MixtureStack(points, weights, random_folds(weights, 5, np.random.default_rng(0)), np.zeros(points.shape[1], dtype=bool), SIZES)
    for _ in out.fit(Deadline()):
        pass
    return out


def comb(n: int, widths: list[float], seed: int) -> np.ndarray:
    """Teeth at 0, 1, 2, …"""
    rng = np.random.default_rng(seed)
    tooth = rng.integers(len(widths), size=n)
    return (tooth + np.array(widths)[tooth] * rng.normal(size=n))[:, None]


@pytest.mark.parametrize(
    ("widths", "tied"), [([0.15, 0.15, 0.15], True), ([0.15, 0.04, 0.15], False), ([0.3], False)], ids=["alike", "unlike", "one"]
)
def test_size_and_kind_are_found(widths: list[float], tied: bool) -> None:
    mixtures = stack_of(comb(300, widths, 5))
    choice = chosen_by_bic(mixtures)
    assert choice is not None and choice.shape == (6,)
    label = mixtures.labels[choice[-1]]
    assert (label.components, label.tied) == (len(widths), tied)
    if len(widths) > 1:
        assert len(np.unique([mixtures.labels[j].components for j in choice])) == 1


def test_few_samples_of_few_features_choose_nothing() -> None:
    assert chosen_by_bic(stack_of(comb(200, [0.2, 0.2], 0))) is None
    for n, some in ((60, True), (7, False)):  # of seven samples there is one size
        X = np.random.default_rng(n).normal(size=(n, 4))
        assert (chosen_by_bic(stack_of(X)) is not None) == some


def test_held_out_scores_are_those_of_the_folds_choices() -> None:
    mixtures = stack_of(comb(300, [0.2, 0.05], 1))
    choice = chosen_by_bic(mixtures)
    assert choice is not None
    logs = held_out_of(mixtures, choice)
    for rows, j in zip(mixtures.rows, choice, strict=False):
        np.testing.assert_array_equal(logs[rows], mixtures.held_out[rows, j])


def test_narrow_teeth_need_a_start_at_the_clusters() -> None:
    """Teeth closer to each other than the largest floor is wide: the path of floors has merged them before it comes to the smallest."""
    rng = np.random.default_rng(3)
    tooth = rng.choice(7, 500, p=[0.25] * 3 + [0.0625] * 4)
    centres, widths = np.array([-4.0, -2.5, -1.0, 0.2, 0.45, 0.7, 0.95]), np.array([0.3] * 3 + [0.04] * 4)
    mixtures = stack_of((centres[tooth] + widths[tooth] * rng.normal(size=500))[:, None])
    scores = mixtures.held_out_weights @ mixtures.held_out
    direct = np.array([label.direct for label in mixtures.labels])
    assert scores[direct].max() > scores[~direct].max() + 0.02


def test_the_share_follows_the_evidence() -> None:
    a, zero = np.full(100, 0.01), np.zeros(100)
    assert posterior_share(zero, zero, a) == pytest.approx(0.75, abs=0.01)  # ½·1 + ½·½
    shares = [posterior_share(zero, np.full(100, gain), a) for gain in (-1.0, -0.1, -0.01, 0.01, 0.1, 1.0)]
    assert shares == sorted(shares, reverse=True) and shares[0] > 0.95 and shares[-1] < 0.05


def test_a_normal_law_is_left_alone() -> None:
    """Where one normal law is the truth, the search is as near to it as the law that is fitted to the samples."""
    rng = np.random.default_rng(11)
    X, fresh = rng.normal(size=(400, 1)), rng.normal(size=(20_000, 1))
    mean, deviation = X.mean(), X.std()
    fitted = np.mean(-0.5 * ((fresh - mean) / deviation) ** 2) - np.log(deviation) - 0.5 * np.log(2.0 * np.pi)
    assert KernelSoSDensityCV().fit(X).score(fresh) > fitted - 2e-3
