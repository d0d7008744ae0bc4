"""What enters the library stays as it was given: nobody's array is shared, no mask is overlooked,
nothing but numbers counts as numbers.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ksos
from ksos.functionals import SquaredL2, SquaredMMD
from ksos.ground import as_points, as_vector, require_numbers
from ksos.kernels import Gaussian
from ksos.measures import Box, Discrete, Normal
from ksos.observables import KernelFunction

KERNEL = Gaussian(1.0)

OWNERS: dict[str, tuple[Callable[[np.ndarray], Any], Callable[[Any], Any]]] = {
    "SoSDensity": (
        lambda X: ksos.SoSDensity(KERNEL, X, np.ones((4, 1)), normalize=True),
        lambda p: p.pdf([[0.3]]),
    ),
    "its factor": (
        lambda X: ksos.SoSDensity(KERNEL, [[0.0], [1.0], [2.0], [3.0]], X, normalize=True),
        lambda p: p.pdf([[0.3]]),
    ),
    "SoSSpace": (lambda X: ksos.SoSSpace(KERNEL, X), lambda space: space.basis([[0.3]])),
    "landmarks": (
        lambda X: ksos.SoSSpace(KERNEL, [[0.0]], landmarks=X),
        lambda space: space.landmarks.copy(),
    ),
    "MeanEmbedding": (lambda X: ksos.MeanEmbedding(X, kernel=KERNEL), lambda v: v([[0.3]])),
    "its weights": (
        lambda X: ksos.MeanEmbedding([[0.0], [1.0], [2.0], [3.0]], X[:, 0], kernel=KERNEL),
        lambda v: v([[0.3]]),
    ),
    "KernelFunction": (lambda X: KernelFunction(X, kernel=KERNEL), lambda f: f([[0.3]])),
    "Discrete": (Discrete, lambda measure: measure.points.copy()),
    "Box": (lambda X: Box(X[:, 0], X[:, 0] + 1.0), lambda box: np.r_[box.low, box.high]),
    "its upper side": (lambda X: Box(X[:, 0] - 1.0, X[:, 0]), lambda box: np.r_[box.low, box.high]),
    "Normal": (
        lambda X: Normal(X[:, 0], X[:, 0] + 9.0),
        lambda measure: np.r_[measure.mean, measure.scale],
    ),
    "Gaussian": (
        lambda X: Gaussian(X[:, 0] + 9.0),
        lambda kernel: kernel(np.zeros((1, 4)), np.ones((1, 4))),
    ),
    "SquaredMMD": (
        SquaredMMD,
        lambda F: ksos.minimize(F, ksos.SoSSpace(KERNEL, [[0.0]])).objective,
    ),
    "SquaredL2": (
        lambda X: SquaredL2(X),
        lambda F: ksos.minimize(F, ksos.SoSSpace(KERNEL, [[0.0]])).objective,
    ),
    "Ball": (lambda X: ksos.Ball(X, 0.1, kernel=KERNEL), lambda ball: ball.points.copy()),
    "support=": (
        lambda X: ksos.KernelSoSDensity(bandwidth=1.0, support=X).fit([[0.0], [1.0]]),
        lambda fit: fit.distribution_.pdf([[0.3]]),
    ),
}


@pytest.mark.parametrize("name", OWNERS)
def test_what_the_caller_does_to_his_array_changes_nothing(name: str) -> None:
    make, ask = OWNERS[name]
    X = np.array([[-0.4], [0.1], [0.5], [1.5]])
    made = make(X)
    before = ask(made)
    X += 7.0
    np.testing.assert_array_equal(ask(made), before)


def test_a_copy_is_made_unless_nobody_can_write_to_the_memory(tmp_path: Path) -> None:
    X = np.arange(6.0).reshape(3, 2)
    own = as_points(X, copy=True)
    assert not np.shares_memory(own, X) and not own.flags.writeable and X.flags.writeable
    view = X.view()
    view.setflags(write=False)
    assert not np.shares_memory(as_points(view, copy=True), X), (
        "a view that cannot be written to, of an array that can"
    )
    assert np.shares_memory(as_points(own, copy=True), own) and np.shares_memory(
        as_points(own[:2], copy=True), own
    )
    np.save(tmp_path / "rows.npy", X)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    assert np.shares_memory(as_points(mapped, copy=True), mapped)
    written = np.load(tmp_path / "rows.npy", mmap_mode="r+")
    assert not np.shares_memory(as_points(written, copy=True), written)
    assert as_points(X) is X, "where nothing is kept, nothing is copied"


def test_a_million_rows_are_copied_once_and_frozen_ones_not_at_all() -> None:
    X = np.random.default_rng(0).normal(size=(1_000_000, 3))
    for frozen, most in ((False, 1.2), (True, 0.2)):
        X.setflags(write=not frozen)
        tracemalloc.start()
        embedding = ksos.MeanEmbedding(X, np.full(1_000_000, 1e-6), kernel=KERNEL)
        kept, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept - embedding.weights.nbytes <= most * X.nbytes


MASKED = np.ma.masked_greater(np.linspace(-1.0, 1.0, 12).reshape(6, 2), 0.9)
X_2D = np.linspace(-1.0, 1.0, 12).reshape(6, 2)
WEIGHTS = np.ma.masked_greater(np.arange(1.0, 7.0), 5.0)
TARGETS = np.ma.masked_greater(np.linspace(0.0, 1.0, 6), 0.9)
LABELS = np.ma.masked_equal(np.array([0, 1, 0, 1, 0, 1]), 1)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("X", lambda: ksos.KernelSoSDensity().fit(MASKED)),
        ("sample_weight", lambda: ksos.KernelSoSDensity().fit(X_2D, sample_weight=WEIGHTS)),
        ("X", lambda: ksos.KernelSoSDensityCV().fit(MASKED)),
        ("X", lambda: ksos.RobustRegressor().fit(MASKED, X_2D[:, 0])),
        ("y", lambda: ksos.RobustRegressor().fit(X_2D, TARGETS)),
        ("y", lambda: ksos.RobustClassifier().fit(X_2D, LABELS)),
        ("y", lambda: ksos.KernelSoSConditional().fit(X_2D, TARGETS)),
        ("X", lambda: ksos.KernelSoSDensity().fit(X_2D).score_samples(MASKED)),
        ("points", lambda: ksos.MeanEmbedding(MASKED, kernel=KERNEL)),
        ("support_points", lambda: ksos.SoSSpace(KERNEL, MASKED)),
        ("weights", lambda: ksos.MeanEmbedding(X_2D, WEIGHTS, kernel=KERNEL)),
        ("data", lambda: ksos.worst_case(lambda Y: Y[:, 0], ksos.Ball(MASKED, 0.1))),
    ],
)
def test_masks_are_refused_with_the_remedy(name: str, call: Callable[[], Any]) -> None:
    with pytest.raises(
        ValueError,
        match=(
            rf"^{name} is a masked array with .* masked entr.*, and masks are not seen;"
            r" .*filled\(value\)"
        ),
    ):
        call()


def test_a_mask_that_hides_nothing_is_no_mask() -> None:
    np.testing.assert_array_equal(as_points(np.ma.array(X_2D, mask=False)), X_2D)


NO_NUMBERS = {
    "text": [["1.5"], ["2.5"]],
    "bytes": np.array([[b"1.5"], [b"2.5"]]),
    "dates": np.array([["2020-01-01"], ["2021-01-01"]], dtype="datetime64[D]"),
    "durations": np.array([[1], [2]], dtype="timedelta64[s]"),
    "text such as '1.5'": np.array([[1.0], ["1.5"]], dtype=object),
    "bytes such as b'2'": np.array([[1.0], [b"2"]], dtype=object),
}


@pytest.mark.parametrize("what", NO_NUMBERS)
def test_only_numbers_are_numbers(what: str) -> None:
    X = NO_NUMBERS[what]
    for call in (as_points, lambda X: ksos.KernelSoSDensity().fit(X)):
        with pytest.raises(ValueError, match=f"X must hold real numbers; got {what}"):
            call(X)
    # the search models text
    found = {
        "text": "column 'x0' has a level of its own in every row, such as '1.5'",
        "text such as '1.5'": "column 'x0' holds values of several types .* make all numbers",
    }
    expected = found.get(what, f"X must hold real numbers; got {what}")
    with pytest.raises(ValueError, match=expected):
        ksos.KernelSoSDensityCV().fit(X)
    with pytest.raises(ValueError, match=f"weights must hold real numbers; got {what}"):
        as_vector(np.asarray(X).ravel(), "weights")


def test_what_holds_numbers_comes_back_as_it_came() -> None:
    for values in (
        [[1, 2.5]],
        np.array([[1], [True]], dtype=object),
        np.float32([[1.0]]),
        [[1.0], [2.0, 3.0]],
        None,
    ):
        assert require_numbers(values) is values
