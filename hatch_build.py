"""The README as the package index shows it: README.md without what an index cannot show.

An index draws no formulas, and a link or a picture of the README leads to a file of the checkout,
which an index does not have.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

EQUATION = """```
minimize over B ⪰ 0    ‖ 1/n Σᵢ k(·, xᵢ) − ∫ k(·, x) p(x) dx ‖² + λ tr(BK)
with                   p(x) = Σᵢⱼ Bᵢⱼ k(x, x̃ᵢ) k(x, x̃ⱼ)   and   ∫ p = 1
```"""
FOR_THE_INDEX = [
    (r"^\$\$.+?\$\$$", EQUATION),  # the one formula, in letters
    (r"^!\[[^\]]*\]\((?!https?:)[^)]*\)\n+", ""),
    (
        r"\s\(\[[^\]]+\]\((?!https?:)[^)]*\)(?:, and\s\[[^)]+\)[^)]*)?\)",
        "",
    ),  # a remark that only leads elsewhere
    (r"\[([^\]]+)\]\((?!https?:)[^)]*\)", r"\1"),  # the words of a link stay
    (r"^<!-- checkout -->\n.*?^<!-- end -->\n+", ""),  # what only a reader of the checkout can use
]


def for_the_index(text: str) -> str:
    """What the index shows of the README ``text``."""
    for pattern, replacement in FOR_THE_INDEX:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE | re.DOTALL)
    return text


class IndexReadme(MetadataHookInterface):
    """Put the README of the index into the metadata."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Hatchling calls this with the metadata of the project."""
        text = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": for_the_index(text)}
