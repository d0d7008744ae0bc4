"""KernelSoSConditional: scikit-learn's contract, the laws of conditional densities, and errors that
say what to do.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KernelDensity
from sklearn.utils.estimator_checks import parametrize_with_checks
from statistics_checks import FALSE_ALARM, dkw_passes_at

from ksos import KernelSoSDensity, KernelSoSDensityCV
from ksos.estimators import KernelSoSConditional
from ksos.measures import Box, Normal


def wave(n: int = 200, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """y = sin 2x plus noise that grows from left to right."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2.0, 2.0, size=(n, 1))
    return X, np.sin(2.0 * X[:, 0]) + (0.15 + 0.05 * X[:, 0]) * rng.normal(size=n)


def joint(**options: Any) -> KernelSoSDensity:
    return KernelSoSDensity(
        **{"bandwidth": [0.7, 0.5], "regularization": 1e-5, "tol": 1e-5, "n_support": 80, **options}
    )


@pytest.fixture(scope="module")
def fitted() -> KernelSoSConditional:
    return KernelSoSConditional("joint", estimator=joint()).fit(*wave())


@pytest.fixture(scope="module")
def two_outputs() -> KernelSoSConditional:
    X, y = wave(120)
    second = 0.5 * X[:, 0] + 0.3 * np.random.default_rng(1).normal(size=120) + 0.5 * y
    return KernelSoSConditional(
        "joint", estimator=joint(bandwidth=[1.0, 0.8, 0.8], n_support=50)
    ).fit(X, np.column_stack([y, second]))


@parametrize_with_checks(
    [
        KernelSoSConditional("joint", estimator=KernelSoSDensity(tol=1e-4, n_support=15)),
        KernelSoSConditional(
            "joint",
            estimator=KernelSoSDensityCV(
                [0.8], [1.0, 0.1], cv=2, reference=None, n_support=30, tol=1e-4
            ),
        ),
    ]
)
def test_scikit_learn_checks(estimator: Any, check: Any) -> None:
    check(estimator)


# --- what a conditional density is ---


def test_density_is_joint_over_marginal(fitted: KernelSoSConditional) -> None:
    X, y = wave(30, 5)
    p = fitted.distribution_
    expected = p.logpdf(np.column_stack([X, y])) - p.marginal([0]).logpdf(X)
    np.testing.assert_allclose(fitted.score_samples(X, y), expected, atol=1e-8)
    np.testing.assert_allclose(fitted.pdf(X, y), np.exp(expected), rtol=1e-8)
    assert fitted.score(X, y) == pytest.approx(fitted.score_samples(X, y).mean(), rel=1e-12)


def test_mass_one_for_every_condition(fitted: KernelSoSConditional) -> None:
    nodes, weights = np.polynomial.legendre.leggauss(400)
    X = np.array([[-1.9], [0.0], [1.3], [4.0]])
    values = fitted.pdf(X, grid=8.0 * nodes)
    assert values.shape == (4, 400)
    np.testing.assert_allclose(values @ (8.0 * weights), 1.0, rtol=1e-6)
    np.testing.assert_allclose(
        values[2], fitted.pdf(np.tile(X[2], (400, 1)), 8.0 * nodes), rtol=1e-10
    )


def test_mean_and_spread_are_those_of_the_conditional(fitted: KernelSoSConditional) -> None:
    X = np.array([[-1.5], [0.2], [1.0]])
    mean, std = fitted.predict(X, return_std=True)
    np.testing.assert_array_equal(fitted.predict(X), mean)
    for i, x in enumerate(X):
        alone = fitted.at(x)
        assert mean[i] == pytest.approx(alone.mean()[0], abs=1e-7)
        assert std[i] == pytest.approx(np.sqrt(alone.cov()[0, 0]), abs=1e-6)


def test_it_predicts(fitted: KernelSoSConditional) -> None:
    X, y = wave(400, 9)
    X, y = X[np.abs(X[:, 0]) < 1.8], y[np.abs(X[:, 0]) < 1.8]
    mean, std = fitted.predict(X, return_std=True)
    assert np.abs(mean - np.sin(2.0 * X[:, 0])).mean() < 0.12
    constant = -0.5 * np.log(2.0 * np.pi * y.var()) - 0.5
    assert fitted.score(X, y) > constant + 0.3
    inside = (y > fitted.predict_quantile(X, 0.05)) & (y < fitted.predict_quantile(X, 0.95))
    assert 0.82 < inside.mean() < 0.98
    assert std.shape == mean.shape == y.shape


def test_quantile_and_cdf_are_inverse(fitted: KernelSoSConditional) -> None:
    X = wave(50, 3)[0]
    levels = [0.01, 0.3, 0.5, 0.99]
    values = fitted.predict_quantile(X, levels)
    assert values.shape == (50, 4)
    for j, level in enumerate(levels):
        np.testing.assert_allclose(fitted.cdf(X, values[:, j]), level, atol=1e-10)
    np.testing.assert_allclose(fitted.predict_quantile(X, 0.3), values[:, 1], atol=1e-12)
    ends = fitted.predict_quantile(X[:1], [1.0, 0.5, 0.0])
    np.testing.assert_array_equal(ends[0, [0, 2]], [np.inf, -np.inf])
    np.testing.assert_allclose(ends[0], fitted.at(X[0]).ppf([1.0, 0.5, 0.0]), rtol=1e-8)


def test_samples_follow_the_law(fitted: KernelSoSConditional) -> None:
    X = np.array([[-1.0], [0.5]])
    draws = fitted.sample(X, 20_000, random_state=0)
    assert draws.shape == (2, 20_000)
    np.testing.assert_array_equal(draws, fitted.sample(X, 20_000, random_state=0))
    for i in range(2):
        row = X[[i]]
        assert dkw_passes_at(
            draws[i], lambda t, row=row: fitted.cdf(np.repeat(row, len(t), axis=0), t)
        )  # type: ignore[misc]
    assert not dkw_passes_at(
        draws[0], lambda t: fitted.cdf(np.repeat(X[[1]], len(t), axis=0), t)
    ), "the laws differ: the test must see it"
    assert fitted.sample(X, 0).shape == (2, 0)


def test_several_outputs(two_outputs: KernelSoSConditional) -> None:
    X = np.array([[-0.8], [0.9]])
    mean, std = two_outputs.predict(X, return_std=True)
    assert mean.shape == std.shape == (2, 2)
    for i, x in enumerate(X):
        alone = two_outputs.at(x)
        np.testing.assert_allclose(mean[i], alone.mean(), atol=1e-6)
        np.testing.assert_allclose(std[i], np.sqrt(np.diag(alone.cov())), atol=1e-5)
    n = 4000
    draws = two_outputs.sample(X, n, random_state=1)
    assert draws.shape == (2, n, 2)
    bound = np.sqrt(2.0 * np.log(2.0 / FALSE_ALARM) / n)
    for i, x in enumerate(X):
        assert np.all(np.abs(draws[i].mean(axis=0) - mean[i]) < bound * std[i] * 1.5)
        expected, got = two_outputs.at(x).cov(), np.cov(draws[i].T)
        np.testing.assert_allclose(
            got, expected, atol=0.2 * np.sqrt(expected[0, 0] * expected[1, 1])
        )
        assert abs(got[0, 1] - expected[0, 1]) < 0.12 * np.sqrt(expected[0, 0] * expected[1, 1]), (
            "the outputs are drawn together"
        )


def test_a_column_as_target_stays_a_column() -> None:
    X, y = wave(60)
    flat, column = (
        KernelSoSConditional("joint", estimator=joint()).fit(X, y),
        KernelSoSConditional("joint", estimator=joint()).fit(X, y[:, None]),
    )
    assert column.predict(X).shape == (60, 1) and column.sample(X, 2).shape == (60, 2, 1)
    np.testing.assert_array_equal(column.predict(X)[:, 0], flat.predict(X))
    np.testing.assert_array_equal(column.score_samples(X, y[:, None]), flat.score_samples(X, y))


def test_without_arguments() -> None:
    X, y = wave(40)
    est = KernelSoSConditional("joint", random_state=1).fit(X, y)
    assert isinstance(est.estimator_, KernelSoSDensityCV)
    assert est.estimator_.objective == "likelihood" and est.estimator_.random_state == 1
    new_X, new_y = wave(200, 7)
    gaussian = (
        -0.5 * np.log(2.0 * np.pi * y.var()) - 0.5 * np.mean((new_y - y.mean()) ** 2) / y.var()
    )
    assert est.score(new_X, new_y) > gaussian, "better than a normal law that ignores x"
    assert np.all(np.isfinite(est.predict(new_X)))
    other = KernelSoSConditional(
        "joint", objective="squared_mmd", measure=Normal(0.0, 1.0)
    )._joint_estimator()
    assert (
        other.objective == "squared_mmd"
        and other.measure == Normal(0.0, 1.0)
        and other.random_state == 0
    )


# --- domains, weights, units ---


def test_target_on_a_box() -> None:
    rng = np.random.default_rng(2)
    X = rng.uniform(0.0, 1.0, size=(150, 1))
    y = rng.beta(1.0, 1.0 + 4.0 * X[:, 0])
    est = KernelSoSConditional(
        "joint", estimator=joint(bandwidth=[0.6, 0.4], measure=Box([-np.inf, 0.0], [np.inf, 1.0]))
    ).fit(X, y)
    low, high = est.predict_quantile(X, 0.0), est.predict_quantile(X, 1.0)
    assert np.all(low == 0.0) and np.all(high == 1.0), "the walls, exactly"
    assert np.all(est.sample(X, 50, random_state=0) >= 0.0)
    assert np.all(np.isneginf(est.score_samples(X[:2], [-0.01, 1.01])))
    assert est.score(X[:2], [0.5, 1.01]) == -np.inf
    assert est.score(X[:2], [0.5, 1.01], sample_weight=[1.0, 0.0]) == pytest.approx(
        est.score_samples(X[:1], [0.5])[0]
    ), "a row without weight"
    np.testing.assert_array_equal(est.cdf(X[:4], [2.0, 1.0, 0.0, -1.0]), [1.0, 1.0, 0.0, 0.0])
    nodes, weights = np.polynomial.legendre.leggauss(100)
    np.testing.assert_allclose(
        est.pdf(X[:5], grid=0.5 * (nodes + 1.0)) @ (0.5 * weights), 1.0, rtol=1e-8
    )


def test_conditions_outside_of_the_box_are_named() -> None:
    X, y = wave(60)
    est = KernelSoSConditional(
        "joint", estimator=joint(measure=Box([-2.0, -np.inf], [2.0, np.inf]))
    ).fit(X, y)
    with pytest.raises(ValueError, match="row 1"):
        est.predict([[0.0], [2.5]])


def test_weights_count_as_repetitions() -> None:
    X, y = wave(50)
    counts = np.random.default_rng(0).integers(0, 3, size=50)
    weighted = KernelSoSConditional("joint", estimator=joint()).fit(X, y, sample_weight=counts)
    repeated = KernelSoSConditional("joint", estimator=joint()).fit(
        np.repeat(X, counts, axis=0), np.repeat(y, counts)
    )
    np.testing.assert_allclose(weighted.predict(X), repeated.predict(X), atol=1e-7)
    assert weighted.score(X, y, sample_weight=counts) == pytest.approx(
        weighted.score(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    )
    with pytest.raises(ValueError, match="sample_weight"):
        weighted.score(X, y, sample_weight=counts[:-1])


@pytest.mark.parametrize(("a", "b", "shift"), [(1e6, 1e-6, 0.0), (1.0, 1.0, 2.0**27)])
def test_units_do_not_matter(
    fitted: KernelSoSConditional, a: float, b: float, shift: float
) -> None:
    X, y = wave()
    X, y = (
        np.round(X * 2**20) / 2**20,
        np.round(y * 2**20) / 2**20,
    )  # so that the shift loses nothing
    plain = KernelSoSConditional("joint", estimator=joint(regularization="auto")).fit(X, y)
    moved = KernelSoSConditional(
        "joint", estimator=joint(regularization="auto", bandwidth=[0.7 * a, 0.5 * b])
    ).fit(a * X + shift, b * y + shift)
    rows = a * X[:20] + shift
    np.testing.assert_allclose((moved.predict(rows) - shift) / b, plain.predict(X[:20]), atol=1e-5)
    np.testing.assert_allclose(
        moved.score_samples(rows, b * y[:20] + shift) + np.log(b),
        plain.score_samples(X[:20], y[:20]),
        atol=1e-5,
    )
    np.testing.assert_allclose(
        moved.cdf(rows, b * y[:20] + shift), plain.cdf(X[:20], y[:20]), atol=1e-6
    )


def test_far_conditions_give_numbers(fitted: KernelSoSConditional) -> None:
    for x in (-50.0, 1e3, 1e6):
        mean, std = fitted.predict([[x]], return_std=True)
        assert np.isfinite(mean[0]) and std[0] > 0.0
        assert np.isfinite(fitted.score_samples([[x]], [0.0])[0])


# --- scikit-learn's life with it ---


def test_grid_search_chooses_by_conditional_log_density() -> None:
    X, y = wave(80)
    model = KernelSoSConditional("joint", estimator=joint(n_support=25, tol=1e-4))
    grid = {"estimator__bandwidth": [[0.7, 0.5], [3.0, 3.0]]}
    search = GridSearchCV(model, grid, cv=3, error_score="raise").fit(X, y)
    assert search.best_params_["estimator__bandwidth"] == [0.7, 0.5]
    by_hand = cross_val_score(clone(model), X, y, cv=3)
    assert search.cv_results_["mean_test_score"][0] == pytest.approx(by_hand.mean(), rel=1e-12)


def test_the_given_estimator_is_left_alone() -> None:
    inner = joint()
    model = KernelSoSConditional("joint", estimator=inner).fit(*wave(40))
    assert model.estimator is inner and not hasattr(inner, "distribution_")
    assert model.estimator_ is not inner and model.distribution_ is model.estimator_.distribution_
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict([[0.3]]), model.predict([[0.3]]))


# --- errors ---


def test_targets_of_the_wrong_length(fitted: KernelSoSConditional) -> None:
    X, y = wave(20)
    for act in (
        KernelSoSConditional("joint", estimator=joint()).fit,
        fitted.score_samples,
        fitted.cdf,
        fitted.score,
    ):
        with pytest.raises(ValueError, match="X has 20 rows, but y has 19"):
            act(X, y[:-1])
    with pytest.raises(ValueError, match="the target y is None"):
        KernelSoSConditional("joint", estimator=joint()).fit(X, None)
    np.testing.assert_array_equal(
        fitted.score_samples(X), fitted.score_samples(X, fitted.predict(X))
    )
    with pytest.raises(
        ValueError, match="y must be given, of 1 output for each row of X; got None"
    ):
        fitted.score(X, None)
    with pytest.raises(ValueError, match="y has 2 outputs, but 1 were fitted"):
        fitted.score_samples(X, np.column_stack([y, y]))


@pytest.mark.parametrize("q", [-0.1, 1.5, [0.5, 2.0], np.nan, "half", []])
def test_levels_that_are_none(fitted: KernelSoSConditional, q: Any) -> None:
    with pytest.raises(ValueError, match="q"):
        fitted.predict_quantile([[0.0]], q)


def test_outputs_have_laws_of_their_own(two_outputs: KernelSoSConditional) -> None:
    X = np.array([[-0.8], [0.9]])
    values = two_outputs.predict_quantile(X, [0.1, 0.9])
    assert values.shape == (2, 2, 2)
    for j, level in enumerate((0.1, 0.9)):
        np.testing.assert_allclose(two_outputs.cdf(X, values[:, j]), level, atol=1e-9)
    np.testing.assert_allclose(two_outputs.predict_interval(X, 0.8), values, atol=1e-12)
    with pytest.raises(ValueError, match="grid is for a single output, but 2 were fitted"):
        two_outputs.cdf(X, grid=[[0.0, 0.0]])


def test_options_that_would_be_ignored() -> None:
    X, y = wave(20)
    for option in ({"objective": "squared_mmd"}, {"measure": Normal(0.0, 1.0)}):
        with pytest.raises(ValueError, match=f"{next(iter(option))} is for the default estimator"):
            KernelSoSConditional("joint", estimator=joint(), **option).fit(X, y)
    with pytest.raises(TypeError, match=r"such as ksos\.KernelSoSDensity"):
        KernelSoSConditional("joint", estimator="likelihood").fit(X, y)
    with pytest.raises(
        TypeError, match=r"a kernel sum of squares by volume.*got KernelDensity\(\)"
    ):
        KernelSoSConditional("joint", estimator=KernelDensity()).fit(X, y)


def test_use_before_fit() -> None:
    est = KernelSoSConditional("joint", estimator=joint())
    for act in (
        lambda: est.predict([[0.0]]),
        lambda: est.score_samples([[0.0]], [0.0]),
        lambda: est.sample([[0.0]]),
        lambda: est.at([0.0]),
    ):
        with pytest.raises(NotFittedError):
            act()
