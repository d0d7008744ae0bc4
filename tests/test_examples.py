"""Every script of the gallery runs as it stands, says something, writes nothing, and shows what it
draws.
"""

from __future__ import annotations

import ast
import os
import runpy
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
SCRIPTS = sorted(
    script for name in ("gallery", "how_to") for script in EXAMPLES.glob(f"{name}/*.py")
)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_example(
    script: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    shown: list[int] = []
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(plt, "show", lambda: shown.extend(plt.get_fignums()))
    settings = dict(mpl.rcParams)
    try:
        runpy.run_path(str(script), run_name="__main__")
        for number in shown:
            plt.figure(number).canvas.draw()
        assert plt.get_fignums() == shown, "a figure that nobody sees"
    finally:
        plt.close("all")
    assert capsys.readouterr().out.strip()
    assert os.listdir(tmp_path) == []
    assert dict(mpl.rcParams) == settings
    assert bool(shown) == ("matplotlib" in script.read_text(encoding="utf-8"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_example_is_one_short_idea(script: Path) -> None:
    text = script.read_text(encoding="utf-8")
    assert ast.get_docstring(ast.parse(text)), "its first line says the idea"
    assert len(text.splitlines()) <= 70
