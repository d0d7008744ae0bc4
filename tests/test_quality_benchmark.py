"""The quality benchmark is right about its truths, its scores and its sums, and can be cut short,
resumed and merged.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from quality import app, marron_wand, mixture_grid, records, runner
from quality.contestants import CONTESTANTS, GaussianFit, sample_inner, standardized
from quality.datasets import DATASETS, SIZES, DataSet
from quality.gaussian_mixture import GaussianMixtureLaw
from quality.records import Key
from quality.scores import grid, grid_mmd2, mmd_bandwidth, sampled_ise, scores, unbiased_mmd2
from quality.work import measure
from scipy.optimize import minimize
from scipy.stats import norm
from sklearn.exceptions import ConvergenceWarning
from sklearn.mixture import GaussianMixture
from statistics_checks import chi_square_passes

ROOT = Path(__file__).resolve().parents[1]
PLANAR = {name: data for name, data in DATASETS.items() if data.law is not None and data.d <= 2}
KNOWN = {name: data for name, data in DATASETS.items() if data.law is not None}
each_planar = pytest.mark.parametrize("data", PLANAR.values(), ids=PLANAR)


# --- the truths ---


def test_everything_asked_for_is_there() -> None:
    assert [data.name for data in DATASETS.values() if data.group == "Marron–Wand"] == list(
        marron_wand.MARRON_WAND
    )
    assert len(marron_wand.MARRON_WAND) == 15
    assert {
        "two_moons",
        "rings",
        "pinwheel",
        "spirals",
        "clayton_beta",
        "blobs_d3",
        "blobs_d5",
        "blobs_d10",
    } <= set(DATASETS)
    assert {"iris", "wine", "breast_cancer_pca5", "diabetes", "digits_pca10"} <= set(DATASETS)
    assert SIZES == (100, 400, 1600)


def test_published_weights_sum_to_one() -> None:
    for name, components in marron_wand._TABLE.items():
        assert sum(weight for weight, _, _ in components) == pytest.approx(1.0, abs=1e-12), name


@each_planar
def test_densities_have_mass_one(data: DataSet) -> None:
    axes, cell = grid(data)
    assert data.law is not None
    nodes = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    assert cell * np.exp(data.law.logpdf(nodes)).sum() == pytest.approx(1.0, abs=3e-3)


@each_planar
def test_samples_follow_their_density(data: DataSet) -> None:
    """χ² on cells of a coarse grid, probabilities from the density."""
    assert data.law is not None
    axes, cell = grid(data)
    nodes = np.stack([axis.ravel() for axis in np.meshgrid(*axes, indexing="ij")], axis=1)
    mass = cell * np.exp(data.law.logpdf(nodes))
    edges = [
        np.quantile(
            data.law.sample(2000, np.random.default_rng(7))[:, k], np.linspace(0.0, 1.0, 8)[1:-1]
        )
        for k in range(data.d)
    ]
    edges = [
        axis[np.clip(np.searchsorted(axis, cut), 1, None)] - 0.5 * (axis[1] - axis[0])
        for axis, cut in zip(axes, edges, strict=True)
    ]
    edges = [np.unique(cut) for cut in edges]
    which = np.zeros(nodes.shape[0], dtype=int)
    draws = data.law.sample(20_000, np.random.default_rng(1))
    hit = np.zeros(draws.shape[0], dtype=int)
    for k, cut in enumerate(edges):
        which = which * (cut.size + 1) + np.searchsorted(cut, nodes[:, k])
        hit = hit * (cut.size + 1) + np.searchsorted(cut, draws[:, k])
    size = int(np.prod([cut.size + 1 for cut in edges]))
    probabilities = np.bincount(which, weights=mass, minlength=size)
    counts = np.bincount(hit, minlength=size)
    enough = probabilities > 2e-3
    rest = np.r_[probabilities[enough], 1.0 - probabilities[enough].sum()]
    rest = np.clip(rest, 1e-3, None)
    assert chi_square_passes(
        np.r_[counts[enough], counts[~enough].sum() + 20.0 * (rest[-1] <= 1e-3)], rest / rest.sum()
    )


@pytest.mark.parametrize("d", [3, 5, 10])
def test_blobs_by_their_moments(d: int) -> None:
    law = DATASETS[f"blobs_d{d}"].law
    assert isinstance(law, GaussianMixtureLaw)
    X = law.sample(20_000, np.random.default_rng(0))
    mean = law.weights @ law.means
    spread = np.einsum("c,cij->ij", law.weights, law.covariances) + (
        law.weights[:, None] * (law.means - mean)
    ).T @ (law.means - mean)
    np.testing.assert_allclose(
        X.mean(axis=0), mean, atol=6.0 * np.sqrt(np.diag(spread).max() / 20_000)
    )
    np.testing.assert_allclose(np.cov(X.T), spread, atol=0.05 * spread.max())
    by_hand = sum(
        w
        * np.exp(-0.5 * np.sum((X[:5] - m) @ np.linalg.inv(S) * (X[:5] - m), axis=1))
        / np.sqrt(np.linalg.det(2.0 * np.pi * S))
        for w, m, S in zip(law.weights, law.means, law.covariances, strict=True)
    )
    np.testing.assert_allclose(np.exp(law.logpdf(X[:5])), by_hand, rtol=1e-10)


@pytest.mark.parametrize("name", DATASETS)
def test_a_sample_is_a_function_of_name_size_and_seed(name: str) -> None:
    data = DATASETS[name]
    n = data.sizes[0]
    first, again, other = data.split(n, 0), data.split(n, 0), data.split(n, 1)
    np.testing.assert_array_equal(first.train, again.train)
    np.testing.assert_array_equal(first.test, again.test)
    assert not np.array_equal(first.train, other.train)
    assert first.train.shape[1] == first.test.shape[1] == data.d
    assert n == 0 or first.train.shape[0] == n
    assert np.all(np.isfinite(first.train)) and np.all(first.train.std(axis=0) > 0.0)


# --- the scores ---

NARROW = GaussianMixtureLaw(
    np.array([0.3, 0.7]), np.array([[0.0], [1.5]]), np.array([[[0.25]], [[0.5]]])
)
WIDE = GaussianMixtureLaw(np.array([1.0]), np.array([[0.9]]), np.array([[[1.2]]]))
SIGMA = np.array([1.3])


def toy(law: Any, d: int) -> DataSet:
    return DataSet("toy", "toy", d, (100,), law)


def fit_of(law: GaussianMixtureLaw) -> GaussianFit:
    d = law.n_features
    return GaussianFit(law, np.zeros(d), np.ones(d))


def inner(p: GaussianMixtureLaw, q: GaussianMixtureLaw, sigma: float) -> float:
    """∬ k p q of two mixtures on the line, component by component."""
    total = 0.0
    for w, m, S in zip(p.weights, p.means[:, 0], p.covariances[:, 0, 0], strict=True):
        for v, c, R in zip(q.weights, q.means[:, 0], q.covariances[:, 0, 0], strict=True):
            variance = S + R + 0.5 * sigma**2
            total += w * v * np.sqrt(np.pi) * sigma * norm.pdf(m, c, np.sqrt(variance))
    return float(total)


def test_embedding_and_norm_of_a_mixture() -> None:
    assert NARROW.self_inner(SIGMA) == pytest.approx(inner(NARROW, NARROW, 1.3), rel=1e-12)
    point = GaussianMixtureLaw(np.ones(1), np.array([[0.4]]), np.array([[[1e-14]]]))
    assert NARROW.embedding(np.array([[0.4]]), SIGMA)[0] == pytest.approx(
        inner(NARROW, point, 1.3), rel=1e-9
    )
    shared = GaussianMixtureLaw(NARROW.weights, NARROW.means, NARROW.covariances[:1])
    apart = GaussianMixtureLaw(
        NARROW.weights, NARROW.means, np.repeat(NARROW.covariances[:1], 2, axis=0)
    )
    assert shared.self_inner(SIGMA) == pytest.approx(apart.self_inner(SIGMA), rel=1e-12)


def test_quadrature_scores_against_closed_forms() -> None:
    data = toy(NARROW, 1)
    axes, cell = grid(data)
    error = np.exp(WIDE.logpdf(axes[0][:, None])) - np.exp(NARROW.logpdf(axes[0][:, None]))
    exact = inner(WIDE, WIDE, 1.3) + inner(NARROW, NARROW, 1.3) - 2.0 * inner(WIDE, NARROW, 1.3)
    assert grid_mmd2(error * cell, axes, SIGMA) == pytest.approx(exact, rel=1e-3)
    # a kernel so narrow that the squared MMD is its mass times the integrated squared error
    narrow = 1e-4
    ise = (
        inner(WIDE, WIDE, narrow)
        + inner(NARROW, NARROW, narrow)
        - 2.0 * inner(WIDE, NARROW, narrow)
    )
    assert cell * error @ error == pytest.approx(ise / (np.sqrt(np.pi) * narrow), rel=1e-3)


def test_squared_mmd_to_held_out_samples_is_unbiased() -> None:
    values = []
    for seed in range(60):
        test = NARROW.sample(60, np.random.default_rng(seed))
        values.append(unbiased_mmd2(fit_of(WIDE), test, SIGMA))
    exact = inner(WIDE, WIDE, 1.3) + inner(NARROW, NARROW, 1.3) - 2.0 * inner(WIDE, NARROW, 1.3)
    assert np.mean(values) == pytest.approx(exact, abs=5.0 * np.std(values) / np.sqrt(60))
    Z = NARROW.sample(7, np.random.default_rng(0))
    assert sample_inner(Z, SIGMA) == pytest.approx(
        np.mean(np.exp(-(((Z - Z.T) / 1.3) ** 2))), rel=1e-12
    )


def test_importance_sampling_of_the_squared_error() -> None:
    """In the plane, with a second feature N(0, 1) in truth and fit alike, which contributes ∫N(0,
    1)² = 1/(2√π).
    """
    plane, guess = (
        GaussianMixtureLaw(
            law.weights,
            np.pad(law.means, ((0, 0), (0, 1))),
            np.stack([np.diag([S[0, 0], 1.0]) for S in law.covariances]),
        )
        for law in (NARROW, WIDE)
    )
    data = toy(plane, 2)
    narrow = 1e-4
    line = (
        inner(WIDE, WIDE, narrow)
        + inner(NARROW, NARROW, narrow)
        - 2.0 * inner(WIDE, NARROW, narrow)
    ) / (np.sqrt(np.pi) * narrow)
    found = sampled_ise(fit_of(guess), data, data.split(100, 0), 100, 0)
    assert found == pytest.approx(line / (2.0 * np.sqrt(np.pi)), rel=0.05)


def test_a_perfect_fit_scores_perfectly() -> None:
    for name in ("mw10_claw", "blobs_d3"):
        data = DATASETS[name]
        split = data.split(100, 0)
        assert isinstance(data.law, GaussianMixtureLaw)
        found = scores(fit_of(data.law), data, split, 100, 0)
        assert found["log_likelihood"] == pytest.approx(found["true_log_likelihood"], rel=1e-12)
        assert found["ise"] == pytest.approx(0.0, abs=1e-12)
        assert found["mmd2"] == pytest.approx(0.0, abs=1e-3)


# --- the contestants ---


@pytest.mark.parametrize("name", ["kde", "scipy_kde", "gmm"])
def test_peers_are_what_their_libraries_say(name: str) -> None:
    from scipy.stats import gaussian_kde
    from sklearn.neighbors import KernelDensity

    split = DATASETS["clayton_beta"].split(100, 0)
    fitted = CONTESTANTS[name].fit(split.train, None)
    U, shift, scale = standardized(split.train)
    there = (split.test[:50] - shift) / scale
    if name == "scipy_kde":
        expected = gaussian_kde(split.train.T).logpdf(split.test[:50].T)
    elif name == "kde":
        expected = (
            KernelDensity(bandwidth=fitted.chosen["bandwidth"]).fit(U).score_samples(there)
            - np.log(scale).sum()
        )
    else:
        model = GaussianMixture(fitted.chosen["components"], n_init=3, random_state=0).fit(U)
        expected = model.score_samples(there) - np.log(scale).sum()
    np.testing.assert_allclose(fitted.logpdf(split.test[:50]), expected, rtol=1e-8)


def moons(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A standardized sample, and points to look at."""
    split = DATASETS["two_moons"].split(100, seed)
    U, shift, scale = standardized(split.train)
    return U, (split.test[:30] - shift) / scale


def test_the_grid_is_complete() -> None:
    assert mixture_grid.SIZES == (1, 2, 3, 5, 8, 12, 20, 32) and mixture_grid.FLOORS == (
        1e-6,
        3e-3,
        3e-2,
    )
    U, there = moons(76)
    law, shares = mixture_grid.stack(U)
    assert law.weights.size == 3 * sum(mixture_grid.SIZES) and len(shares) == 24
    split = DATASETS["two_moons"].split(100, 76)
    fitted = CONTESTANTS["gmm_stack"].fit(split.train, None)
    jacobian = np.log(split.train.std(axis=0)).sum()
    np.testing.assert_allclose(
        fitted.logpdf(split.test[:30]), law.logpdf(there) - jacobian, rtol=1e-12
    )


def test_the_best_mixture_of_the_grid_is_scikit_learns() -> None:
    from sklearn.model_selection import GridSearchCV, KFold

    U, there = moons(77)
    sizes = (1, 5, 12)
    grid = {"n_components": sizes, "reg_covar": mixture_grid.FLOORS}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        search = GridSearchCV(
            GaussianMixture(random_state=0), grid, cv=KFold(5, shuffle=True, random_state=0)
        ).fit(U)
    law, chosen = mixture_grid.best(U, sizes=sizes)
    assert chosen == {
        "components": search.best_params_["n_components"],
        "floor": search.best_params_["reg_covar"],
    }
    np.testing.assert_allclose(
        law.logpdf(there), search.best_estimator_.score_samples(there), rtol=1e-9
    )
    candidates, logs = mixture_grid.held_out(U, sizes=sizes)
    assert [tuple(candidate) for candidate in candidates] == [
        (k, floor) for k in sizes for floor in mixture_grid.FLOORS
    ]
    np.testing.assert_allclose(logs.mean(axis=0), search.cv_results_["mean_test_score"], rtol=1e-9)


def test_a_stack_is_the_sum_of_its_refits() -> None:
    U, there = moons(78)
    law, shares = mixture_grid.stack(U, sizes=(1, 5, 12))
    assert law.weights.sum() == pytest.approx(1.0, abs=1e-12) and law.weights.size == 3 * (
        1 + 5 + 12
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        parts = [
            (share, GaussianMixture(int(size), reg_covar=floor, random_state=0).fit(U))
            for size, floor, share in shares
        ]
    np.testing.assert_allclose(
        np.exp(law.logpdf(there)),
        sum(w * np.exp(part.score_samples(there)) for w, part in parts),
        rtol=1e-9,
    )


def test_shares_are_at_the_maximum_of_the_held_out_likelihood() -> None:
    """Against SciPy's constrained solver, on log-densities of which one column is hopeless and far
    below the floating-point range.
    """
    rng = np.random.default_rng(5)
    logs = np.concatenate([rng.normal(size=(200, 4)), np.full((200, 1), -1e4)], axis=1)

    def loss(w: np.ndarray) -> float:
        return -float(np.log(np.exp(logs) @ w).mean())

    simplex = {"type": "eq", "fun": lambda w: w.sum() - 1.0}
    found = minimize(
        loss, np.full(5, 0.2), bounds=[(0.0, 1.0)] * 5, constraints=simplex, options={"ftol": 1e-12}
    )
    w = mixture_grid.shares_by_em(logs)
    assert w.sum() == pytest.approx(1.0) and w.min() >= 0.0 and w[-1] < 1e-6
    assert loss(w) <= found.fun + 1e-6


def test_sizes_beyond_the_samples_of_a_fold_are_left_out() -> None:
    U = standardized(np.random.default_rng(3).normal(size=(10, 2)))[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        candidates, logs = mixture_grid.held_out(U)
    assert {candidate.components for candidate in candidates} == {
        1,
        2,
        3,
        5,
        8,
    }, "a fold of ten leaves eight"
    assert logs.shape == (10, len(candidates)) and np.all(np.isfinite(logs))


def test_a_mixture_that_fails_is_left_out() -> None:
    candidates, logs = mixture_grid.held_out(
        np.linspace(-1.0, 1.0, 20)[:, None] * [1.0, 1.0], sizes=(1, 3), floors=(0.0, 1e-2)
    )
    assert {candidate.floor for candidate in candidates} == {1e-2} and logs.shape == (
        20,
        2,
    ), "collinear samples without a floor"


def test_mmd_of_ours_agrees_with_the_grid() -> None:
    from quality.contestants import SoSFit

    from ksos import KernelSoSDensity

    data = DATASETS["mw06_bimodal"]
    split = data.split(100, 0)
    fitted = SoSFit(KernelSoSDensity(tol=1e-5).fit(split.train))
    sigma = mmd_bandwidth(split.test)
    axes, cell = grid(data)
    masses = cell * np.exp(fitted.logpdf(axes[0][:, None]))
    embedding = [
        float(masses @ np.exp(-(((axes[0] - z) / sigma[0]) ** 2))) for z in split.test[:200, 0]
    ]
    expected = (
        grid_mmd2(masses, axes, sigma)
        - 2.0 * np.mean(embedding)
        + sample_inner(split.test[:200], sigma)
    )
    found = fitted.squared_mmd(split.test[:200], sigma)
    assert found == pytest.approx(expected, abs=2e-3), (
        "6000 draws: about two of their standard deviations"
    )


# --- runs that are cut short, resumed and merged ---


def test_walls_need_a_box() -> None:
    keys = runner.plan(
        lambda name, n: name in ("two_moons", "clayton_beta") and n == 100,
        [0, 1],
        list(CONTESTANTS),
    )
    assert {key.dataset for key in keys if CONTESTANTS[key.contestant].walls} == {"clayton_beta"}
    assert (
        len(keys)
        == len(set(keys))
        == 2 * (2 * len(CONTESTANTS) - sum(contestant.walls for contestant in CONTESTANTS.values()))
    )


def test_what_a_piece_will_take_is_learnt_from_other_seeds() -> None:
    keys = [Key("rings", n, 1, name) for n in (100, 1600) for name in ("scipy_kde", "gmm_stack")]
    guessed = runner.expected_seconds(keys, [])
    assert sorted(keys, key=lambda key: guessed[key])[-1] == Key("rings", 1600, 1, "gmm_stack")
    seen = [
        {**Key("rings", 100, seed, "scipy_kde")._asdict(), "seconds": 100.0 * seed}
        for seed in (2, 3)
    ]
    learnt = runner.expected_seconds(keys, seen)
    assert learnt[keys[0]] >= 300.0 and all(learnt[key] == guessed[key] for key in keys[1:])


def test_a_killed_run_goes_on_and_long_pieces_come_first(tmp_path: Path) -> None:
    output, before = tmp_path / "records.jsonl", tmp_path / "before.jsonl"
    for name, seconds in (("kde", 900.0), ("gmm", 5.0)):
        records.append(before, {**Key("iris", 0, 9, name)._asdict(), "seconds": seconds})
    keys = [Key("iris", 0, 0, name) for name in ("scipy_kde", "gmm", "kde")]
    records.append(output, measure(Key("iris", 0, 1, "scipy_kde")))
    output.write_text(
        output.read_text() + '{"dataset": "ir'
    )  # the line at which the last run was killed
    assert runner.run(keys, output, 1, 5.0, [].append, also=[before]) == 0
    assert [record["contestant"] for record in records.read(output)] == [
        "scipy_kde",
        "kde",
        "gmm",
        "scipy_kde",
    ]
    records.mend(tmp_path / "none.jsonl")
    assert not (tmp_path / "none.jsonl").exists()


def test_run_resume_and_report(tmp_path: Path) -> None:
    output, lines = tmp_path / "records.jsonl", []
    keys = [
        Key("mw01_gaussian", 100, seed, name) for seed in (0, 1) for name in ("scipy_kde", "kde")
    ]
    assert runner.run(keys, output, 1, 0.0, lines.append) == 4, "no time, no work"
    other = tmp_path / "other.jsonl"
    records.append(output, measure(keys[0]))
    records.append(other, measure(keys[1]))
    assert runner.run(keys, output, 1, 5.0, lines.append, also=[other]) == 0
    assert any(line.startswith("2 of 4 pieces") for line in lines), (
        "what is there is not measured again"
    )
    found = records.read_all([output, other])
    assert [records.key_of(record) for record in found] == sorted(keys)
    assert all(np.isfinite(record["ise"]) and record["seconds"] >= 0.0 for record in found)
    assert found[0]["log_likelihood"] == measure(records.key_of(found[0]))["log_likelihood"], (
        "seeded"
    )


def test_broken_and_infinite_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    records.append(
        file, {"dataset": "iris", "n": 0, "seed": 0, "contestant": "kde", "log_likelihood": -np.inf}
    )
    json.loads(file.read_text(), parse_constant=pytest.fail)
    file.write_text(file.read_text() + '{"dataset": "ir')
    assert [record["log_likelihood"] for record in records.read_all([file])] == [-np.inf], (
        "a line cut short is not a record"
    )
    file.write_text('{"dataset": "ir\n' + file.read_text())
    with pytest.raises(ValueError, match="line 1 is not JSON"):
        records.read_all([file])
    assert records.read_all([tmp_path / "none.jsonl"]) == []


def test_a_failure_counts_where_nothing_else_was_measured(tmp_path: Path) -> None:
    file, key = tmp_path / "a.jsonl", Key("iris", 0, 0, "kde")._asdict()
    records.append(file, {**key, "log_likelihood": 1.0})
    records.append(file, {**key, "error": "no"})
    records.append(file, {**key, "seed": 1, "error": "no"})
    assert ["error" in record for record in records.read_all([file])] == [False, True]


def test_a_failure_is_a_record(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(X: np.ndarray, box: Any) -> Any:
        raise RuntimeError("no")

    monkeypatch.setitem(CONTESTANTS, "kde", type(CONTESTANTS["kde"])("KDE", fail))
    assert measure(Key("iris", 0, 0, "kde"))["error"] == "RuntimeError: no"


# --- the command ---


def test_options() -> None:
    assert app.parse_seeds("0-3,7") == [0, 1, 2, 3, 7]
    with pytest.raises(SystemExit, match="--seeds"):
        app.parse_seeds("a-b")
    with pytest.raises(
        SystemExit, match="--seeds: a list such as 0-9 or 0,3,5 was expected; got '5-2'"
    ):
        app.parse_seeds("5-2")
    matches = app._cell_filter(["mw*/400", "rings"])
    assert (
        matches("mw10_claw", 400)
        and matches("rings", 100)
        and not matches("mw10_claw", 100)
        and not matches("iris", 0)
    )
    assert not app._cell_filter(["*"])("shells", 200), "other data are measured when asked for"
    other = app._cell_filter(["*"], other=True)
    assert other("shells", 200) and other("linnerud", 0) and not other("rings", 100)
    with pytest.raises(SystemExit, match="no cell matches nothing"):
        app.main(["run", "--cells", "nothing"])


def test_the_command_works_without_matplotlib(tmp_path: Path) -> None:
    """As on a machine with NumPy, SciPy and scikit-learn only, from a source tree that is not
    installed.
    """
    blocker = tmp_path / "site"
    blocker.mkdir()
    (blocker / "matplotlib.py").write_text("raise ModuleNotFoundError('matplotlib')\n")
    environment = {**os.environ, "PYTHONPATH": str(blocker)}
    output, text = tmp_path / "records.jsonl", tmp_path / "page.md"
    command = [sys.executable, str(ROOT / "benchmarks" / "quality")]
    measured = [
        "run",
        "--output",
        str(output),
        "--cells",
        "iris",
        "--seeds",
        "0",
        "--contestants",
        "scipy_kde",
        "kde",
        "--jobs",
        "1",
    ]
    for arguments in (measured, ["report", str(output), "--page", str(text), "--no-pictures"]):
        done = subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env=environment,
            cwd=tmp_path,
        )
        assert done.returncode == 0, done.stderr
    assert "iris, n = 100" in text.read_text(encoding="utf-8")
