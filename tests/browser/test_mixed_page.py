"""The page with a table of numbers and categories, with missing cells."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas
import pytest

import ksos
from tests.browser.conftest import Browser


def table() -> pandas.DataFrame:
    rng, n = np.random.default_rng(0), 80
    word = rng.choice(["left", "right"], n)
    X = pandas.DataFrame({"word": word, "x": rng.normal(size=n) + 2.0 * (word == "left")})
    X["y"] = rng.normal(size=n) + X["x"]
    X.loc[::9, "x"] = np.nan
    return X


@pytest.fixture(scope="module")
def page() -> Iterator[ksos.Explorer]:
    with ksos.explore(table(), open_browser=False) as page:
        yield page


def test_a_category_is_a_choice(browser: Browser, page: ksos.Explorer, tmp_path: Path) -> None:
    browser.emulate()
    browser.errors()
    browser.open(page.url).settled()
    p = page.distribution_
    assert browser.text("status").startswith("solved")
    assert browser.value("reading-objective") == page.estimator_.solution_.objective
    # given the category
    assert not browser.run("return document.getElementById('level').closest('p').hidden")
    browser.run("document.getElementById('level').value = '1'")
    browser.element("ask-conditional").click()
    text = browser.wait("document.getElementById('conditional-text').textContent")
    assert text.startswith("x given word = right")
    found = browser.value("conditional-text")
    part = p.conditional({"word": "right"})
    assert found["mean"] == pytest.approx(float(np.ravel(part.mean())[0]))
    np.testing.assert_allclose(
        found["pdf"], part.with_feature_names(None).pdf(np.array(found["x"])[:, None])
    )
    # given the number: probabilities of levels
    browser.choose("given", "1")
    browser.run("document.getElementById('value').value = '2.5'")
    browser.element("ask-conditional").click()
    text = browser.wait(
        "document.getElementById('conditional-text').textContent.startsWith('word') &&"
        " document.getElementById('conditional-text').textContent"
    )
    found = browser.value("conditional-text")["probabilities"]
    np.testing.assert_allclose(found, p.conditional({"x": 2.5}).probabilities("word"))
    assert f"left {float(f'{found[0]:.3g}'):g}" in text
    # a box with a level
    browser.run("document.getElementById('low-0').value = '0'")
    browser.run("document.getElementById('low-1').value = '1'")
    browser.element("ask-box").click()
    browser.wait("document.getElementById('box-text').textContent")
    wanted = p.probability({"word": "left", "x": 1.0})
    assert browser.value("box-text") == pytest.approx(wanted)
    browser.element("draw").click()
    browser.wait("document.getElementById('status').textContent.includes('samples drawn')")
    browser.screenshot(tmp_path / "mixed.png")
    browser.emulate(width=400)
    browser.screenshot(tmp_path / "mixed-400.png")
    browser.emulate()
    assert browser.text("error") == "" and browser.errors() == []


def test_pairs_and_single_columns(browser: Browser, page: ksos.Explorer) -> None:
    browser.emulate()
    browser.errors()
    browser.open(page.url).settled()
    fits = int(browser.run("return document.body.dataset.fits"))
    browser.run("document.getElementById('all').click()")
    browser.wait(f"Number(document.body.dataset.fits) > {fits}")
    browser.settled()
    assert page.distribution_.feature_names == ("word", "x", "y")
    fits = int(browser.run("return document.body.dataset.fits"))
    browser.run("document.getElementById('all').checked = false")
    browser.choose("second", "")
    browser.wait(f"Number(document.body.dataset.fits) > {fits}")
    browser.settled()
    assert page.distribution_.feature_names == ("word",)
    browser.element("show-program").click()
    program = browser.wait("document.getElementById('program').textContent")
    assert "X = X[['word']]" in program and "reference='mixture'" in program
    shown = json.loads(browser.run("return JSON.stringify(document.body.dataset)"))
    assert shown["draft"] == "false"
    assert browser.text("error") == "" and browser.errors() == []
