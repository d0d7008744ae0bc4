"""The pages of the built site in a browser: nothing is wider than the window, every image is there.

They are those of ``make docs`` in build/site. Without them the tests are skipped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser.conftest import Browser

SITE = Path(__file__).resolve().parents[2] / "build" / "site"
# of the pages that are generated from docstrings, the longest ones stand for all
LONG = ("ksos.KernelSoSDensityCV", "ksos.SoSDensity", "ksos.worst_case", "ksos.SoSSpace")
PAGES = [
    page.relative_to(SITE).as_posix()
    for page in sorted(SITE.rglob("*.html"))
    if page.parent.name not in ("explorer", "generated", "_static")
    and page.stem not in ("search", "genindex")
] + [f"reference/generated/{name}.html" for name in LONG if SITE.exists()]

# what sticks out of the window, but for what scrolls within its own box
WIDE = """
const inside = e => e && (['auto', 'scroll', 'hidden'].includes(getComputedStyle(e).overflowX)
  || inside(e.parentElement));
return [...document.querySelectorAll('article *')]
  .filter(e => e.getBoundingClientRect().right > innerWidth + 1 && !inside(e.parentElement))
  .map(e => e.tagName + ' ' + e.textContent.trim().slice(0, 60));
"""
MISSING = """
return [...document.images].filter(e => !e.complete || !e.naturalWidth
  || e.src.includes('no_image')).map(e => e.src);
"""


@pytest.mark.skipif(not PAGES, reason="the site is not built: make docs")
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1400, 400])
def test_every_page_fits_its_window(
    browser: Browser, tmp_path: Path, width: int, dark: bool
) -> None:
    browser.emulate(width=width, dark=dark)
    found = []
    for page in PAGES:
        browser.open((SITE / page).as_uri())
        browser.run("document.querySelectorAll('img').forEach(e => e.loading = 'eager')")
        browser.wait("[...document.images].every(e => e.complete)")
        if browser.run("return document.documentElement.scrollWidth") > width:
            found += [f"{page} is wider than {width}"]
        found += [f"{page}: {what}" for what in browser.run(WIDE) + browser.run(MISSING)]
        look = "dark" if dark else "light"
        browser.screenshot(tmp_path / f"site_{page.replace('/', '_')[:-5]}_{width}_{look}.png")
    assert not found, "\n".join(found)
