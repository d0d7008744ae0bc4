"""The explorer of the site, read from a disk: fits made beforehand, and what the browser computes
of them, against Python's own answers.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from docs.static_explorer import SETS, Grid, build
from tests.browser.conftest import Browser
from tests.browser.test_page import LOOKS, drag

GRID = Grid(scales=(0.0, 1.0), strengths=(-3, -2), support=(15, 30))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder, folder / "cache", GRID)
    return folder


@pytest.fixture
def seen(browser: Browser, folder: Path) -> Iterator[Browser]:
    """The page from the disk, settled; afterwards the console is empty, and nothing but files was
    read.
    """
    browser.emulate()
    browser.errors(), browser.requests()
    browser.open((folder / "index.html").as_uri()).settled()
    yield browser
    assert browser.errors() == [] and browser.text("error") == ""
    assert {address.partition(":")[0] for address in browser.requests()} == {"file"}


def by_program(seen: Browser, folder: Path) -> dict[str, Any]:
    """What the lines of Python that the page shows leave in their variables."""
    seen.run(
        "document.getElementById('program').textContent = '';"
        " document.getElementById('show-program').click()"
    )
    program = seen.wait("document.getElementById('program').textContent")
    names: dict[str, Any] = {"print": lambda *_: None}
    exec(program.replace("'model.ksos'", repr(str(folder / "model.ksos"))), names)
    return names


def grid_of_python(X: np.ndarray) -> np.ndarray:
    axes = [
        np.linspace(low - 0.3, high + 0.3, 9)
        for low, high in zip(X.min(axis=0), X.max(axis=0), strict=True)
    ]
    return np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, X.shape[1])


@pytest.mark.parametrize("name", SETS)
def test_the_answers_are_pythons(seen: Browser, folder: Path, name: str) -> None:
    if name != "moons":
        seen.choose("set", name)
        seen.wait("document.body.dataset.fits > 1")
        seen.settled()
    seen.move("strength", -2)
    seen.move("scale", 1)
    seen.settled()
    names = by_program(seen, folder)
    est, p = names["est"], names["p"].with_feature_names(None)
    assert (
        seen.value("reading-objective") == pytest.approx(est.solution_.objective, abs=1e-8)
        and seen.text("reading-status") == "solved"
    )
    assert seen.value("reading-score") == pytest.approx(
        est.score(names["X"][names["held_out"]]), rel=1e-4
    )
    kernel = est.solution_.space.embedding_kernel
    assert seen.value("reading-exact_mmd") == pytest.approx(
        p.mmd(names["X"][names["fitted"]], kernel=kernel), rel=1e-4, abs=1e-6
    )
    X = grid_of_python(names["X"])
    script = (
        "const at = ksosSource.shown().model; return arguments[0].map(ksosDensity.evaluator(at))"
    )
    wanted = p.pdf(X)
    assert np.max(np.abs(np.array(seen.run(script, X.tolist())) - wanted)) <= 1e-6 * np.max(wanted)
    level = float(p.hdr_level(0.5, rng=0))
    assert seen.value("reading-level_50") == pytest.approx(level, rel=0.01)


def test_click_drag_and_samples(seen: Browser, folder: Path) -> None:
    p = by_program(seen, folder)["p"].with_feature_names(None)
    seen.element("plot").click()
    seen.wait("document.getElementById('conditional-text').textContent")
    at, told = float(seen.element("value").get_attribute("value")), seen.value("conditional-text")
    given = p.conditional({0: at})
    assert told["mean"] == pytest.approx(given.mean()[0], abs=1e-6)
    assert [value for _, value in told["quantiles"]] == pytest.approx(
        [given.ppf(q) for q in (0.05, 0.5, 0.95)], abs=1e-6
    )
    assert told["pdf"] == pytest.approx(given.pdf(np.array(told["x"])[:, None]), abs=1e-5)
    drag(seen, (-150, -80), (160, 120))
    seen.wait("document.getElementById('box-text').textContent")
    sides = [
        [float(seen.element(f"{end}-{k}").get_attribute("value")) for k in (0, 1)]
        for end in ("low", "high")
    ]
    assert seen.value("box-text") == pytest.approx(p.probability(*sides), abs=1e-6)
    drawn = np.array(seen.run("return ksosIntegrals.samples(ksosSource.shown().model, 4000, 3)"))
    share = np.mean(np.all((drawn >= sides[0]) & (drawn <= sides[1]), axis=1))
    assert share == pytest.approx(p.probability(*sides), abs=0.03), "four deviations"
    seen.run("document.getElementById('draw').click()")
    seen.wait("document.getElementById('status').textContent.startsWith('200 samples')")


def test_features_in_turn_and_alone(seen: Browser, folder: Path) -> None:
    """The first feature is the second one, and then the only one."""
    both = seen.value("reading-objective")
    seen.choose("first", "1")
    seen.wait("document.body.dataset.fits > 1")
    seen.settled()
    one = seen.value("reading-objective")
    assert one != both and not seen.element("condition").is_displayed()
    seen.run("document.getElementById('low-0').value = 0")
    seen.run("document.getElementById('ask-box').click()")
    seen.wait("document.getElementById('box-text').textContent")
    p = by_program(seen, folder)["p"].with_feature_names(None)
    assert seen.value("box-text") == pytest.approx(p.probability([0.0], [np.inf]), abs=1e-6)
    seen.choose("second", "0")
    seen.wait("document.body.dataset.fits > 2")
    seen.settled()
    turned = seen.run("return ksosSource.shown().model.support[0]")
    assert seen.value("reading-objective") == both
    assert (
        seen.run("return ksosSource.answer('box', {low: [0, -1e300], high: [1e300, 0.2]})")[
            "probability"
        ]
        > 0.01
    )
    seen.choose("first", "0")
    seen.choose("second", "1")
    seen.wait("document.body.dataset.fits > 3")
    seen.settled()
    assert seen.run("return ksosSource.shown().model.support[0]") == turned[::-1]


def test_what_needs_python_is_not_there(seen: Browser) -> None:
    hidden, shown = (
        ("save", "reference", "objective", "kernel", "all"),
        ("set", "show-program", "draw"),
    )
    assert not any(seen.element(name).is_displayed() for name in hidden) and all(
        seen.element(name).is_displayed() for name in shown
    )
    assert "ksos explore data.csv" in seen.text("about")


@pytest.mark.parametrize("name", LOOKS)
def test_pictures(seen: Browser, name: str, tmp_path: Path) -> None:
    width, dark = LOOKS[name]
    seen.emulate(width=width, height=1000 if width > 400 else 2800, dark=dark)
    seen.element("plot").click()
    seen.wait("document.getElementById('conditional-text').textContent")
    assert seen.run("return document.documentElement.scrollWidth <= innerWidth"), (
        "nothing to scroll sideways for"
    )
    assert seen.screenshot(tmp_path / f"static-{name}.png").stat().st_size > 20_000
