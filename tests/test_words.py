"""The words of README, site, docstrings, messages and command line: plain American English."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_documents import ROOT, read, with_outputs, without_fences

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
# the pages that are included elsewhere, and those that list what others wrote
LISTS = {"changelog.md", "contributing.md", "references.md"}
# Words that do not occur, and what is written instead.
WORDS = {
    r"laws?": "distribution, density",
    r"bumps?": "kernel, component",
    r"walls?": "boundary, bounded support",
    r"the squares": "the correction, the SoS term",
    r"(?<!standard )(?<!absolute )deviations?": "standard deviation",
    r"refuse[sd]?|refusal": "raises an error",
    r"remed(?:y|ies)": "suggested fix",
    r"left out|leaves out|leave out": "dropped, excluded",
    r"is said|says so|is told|tells|say(?:s|ing)? aloud": "reports, prints",
    r"the note": "the paper",
    r"rivals?|peers?|contestants?": "other methods, baselines",
    r"a house|the house|rooms?": "architecture, package",
    r"whoever": "name the subject",
    r"as held-out rows ask for|if the data insist": "chosen by cross-validation",
    r"(?:optimi|minimi|maximi|normali|regulari|standardi|factori|summari|organi|initiali|generali"
    r"|reali|recogni|discreti|dequanti|symmetri)s(?:e[sd]?|ing|ations?)": "American spelling",
    r"colou?rs?(?<!color)(?<!colors)|(?:re)?cent(?:re|red|res|ring)|neighbours?|behaviours?"
    r"|favour(?:s|ed|able)?|labell(?:ed|ing)|modell(?:ed|ing)|licences?|analys(?:e[sd]?|ing)"
    r"|grey|cancell(?:ed|ing)": "American spelling",
    r"\d+ %": "90%",
    r"\d+ 000\b": "10,000",
}
FORBIDDEN = re.compile(rf"(?<![\w`-])(?:{'|'.join(WORDS)})(?![\w`])", re.IGNORECASE)
# True uses: names, proper terms, and words in their own meaning.
EXCEPTED = {
    "7 %": "a cell of a file, as people write it",
}
MOST_TRUE_USES = 20


def prose(text: str) -> str:
    """The text of a page without code."""
    return re.sub(r"`[^`]*`|\$\$.*?\$\$|\$[^$]*\$|\]\([^)]*\)", " ", without_fences(text))


def strings() -> Iterator[tuple[str, str]]:
    """(place, text) of every string of the package: docstrings, messages, help."""
    for file in sorted((ROOT / "src" / "ksos").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                yield f"{file.relative_to(ROOT)}:{node.lineno}", node.value


def found(place: str, text: str) -> list[str]:
    text = re.sub(r"`[^`]*`", " ", " ".join(text.split()))
    for phrase in EXCEPTED:
        text = text.replace(phrase, "")
    return [f"{place}: {match[0]!r}" for match in FORBIDDEN.finditer(text)]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_use_plain_words(page: Path) -> None:
    assert not found(page.name, prose(page.read_text(encoding="utf-8")))


def test_docstrings_and_messages_use_plain_words() -> None:
    assert len(EXCEPTED) <= MOST_TRUE_USES
    offences = [line for place, text in strings() for line in found(place, text)]
    assert not offences, "\n".join(offences)


def test_the_check_finds_its_words() -> None:
    for bad in ("the law of x", "two bumps", "a deviation of 2", "optimised", "90 % of", "10 000"):
        assert found("", bad), bad
    for good in ("the standard deviation", "lawn", "optimized", "90% of 10,000", "`law`", "color"):
        assert not found("", good), good


def sentences(text: str) -> list[str]:
    """Of paragraphs and lists; tables, headings and captions are none."""
    lines = [
        line
        for line in prose(text).splitlines()
        if not line.lstrip().startswith(("|", "#", "!", "<", "```"))
    ]
    blocks = re.split(r"\n\s*\n|\n\s*[*-] |\n\s*\d+\. ", "\n".join(lines))
    parts = [part for block in blocks for part in re.split(r"(?<=[.:?!])\s+", block)]
    return [part for part in parts if len(part.split()) > 2]


def test_sentences_are_short() -> None:
    every = [s for page in PAGES for s in sentences(page.read_text(encoding="utf-8"))]
    long = [s for s in every if len(s.split()) > 30]
    assert len(every) > 300
    assert len(long) <= 0.03 * len(every), "\n\n".join(long)


def test_the_site_is_short() -> None:
    pages = [page.read_text(encoding="utf-8") for page in PAGES if page.name not in LISTS]
    assert len(read("README.md").splitlines()) <= 150
    assert sum(len(text.split()) for text in pages[1:]) <= 16_000
    # lines that are read: outputs and code count, blank lines and tables of contents do not
    read_lines = [
        line
        for text in pages[1:]
        for line in re.sub(r"^```\{toctree\}.*?^```", "", text, flags=re.M | re.S).splitlines()
        if line.strip()
    ]
    assert len(read_lines) <= 1_600


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_code_fit_a_column(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    blocks = [block for name in ("python", "pycon") for _, block, _ in with_outputs(text, name)]
    assert not [line for block in blocks for line in block.splitlines() if len(line) > 88]
