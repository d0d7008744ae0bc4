"""The checks of benchmarks/house.py find what they look for: a check that finds nothing anywhere
would prove nothing.
"""

from __future__ import annotations

from pathlib import Path

import house
import pytest

TWELVE = "\n".join(f"    line_{i} = {i} + offset" for i in range(12))
TREE = {
    "src/ksos/ground/memory.py": "limit = 1\n",
    "src/ksos/measures/box.py": "def f(m):\n    return isinstance(m, Box)\n",
    "src/ksos/robust/bad.py": (
        f"""from ksos.ground.memory import limit
from ksos.density._assemble import parts
from ksos.density.sos import _hidden
from ksos.robust._own import own
import numpy as np


class Wide(SoSSpace):
    def copy(self, other, space):
        self.__dict__.update(other)
        return object.__new__(Wide), getattr(space, "n_labels", 1), getattr(space, "rank")


def f(m, offset):  # a comment
{TWELVE}
    return isinstance(m, (Box, Lebesgue)), np.polynomial.legendre.leggauss(3)
"""
    ),
    "src/ksos/density/good.py": (
        f"def g(offset):\n{TWELVE.replace(' + ', '  +  ')}\n    return offset\n"
    ),
    "src/ksos/quadrature/rules.py": "from numpy.polynomial.legendre import leggauss\n",
    "tests/test_it.py": (
        """
def test_it(monkeypatch):
    monkeypatch.setattr("ksos.ground.memory.available_memory", lambda: 1)
    monkeypatch.setattr(module, "_LIMIT", 1)
    monkeypatch.setattr(_memory, "limit", 1)
    monkeypatch.setattr(module, "public", lambda _: 1)
    monkeypatch.setattr(builtins, "__import__", block)
    monkeypatch.setattr("ksos.kernels.gaussian", None)
"""
    ),
}


@pytest.fixture
def _tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(house, "ROOT", tmp_path)
    monkeypatch.setattr(house, "SOURCE", tmp_path / "src" / "ksos")


@pytest.mark.usefixtures("_tree")
def test_every_check_finds_its_offenders_and_nothing_else() -> None:
    assert house.sizes() == {
        "ground": (1, 1),
        "measures": (1, 2),
        "robust": (1, 23),
        "density": (1, 14),
        "quadrature": (1, 1),
    }
    assert house.private_imports() == [
        "src/ksos/robust/bad.py:2: ksos.density._assemble.parts",
        "src/ksos/robust/bad.py:3: ksos.density.sos._hidden",
    ]
    assert house.measure_checks() == ["src/ksos/robust/bad.py:27: isinstance(m, (Box, Lebesgue))"]
    assert sorted(line.partition(": ")[2] for line in house.shortcuts()) == [
        "class Wide(SoSSpace)",
        "getattr(space, 'n_labels', 1)",
        "object.__new__",
        "self.__dict__",
    ]
    assert house.rules() == ["src/ksos/robust/bad.py:27: leggauss"]
    assert [line.split(":")[1] for line in house.private_patches()] == ["3", "4", "5"]
    assert house.shared_lines() == [
        "src/ksos/density/good.py:2 and src/ksos/robust/bad.py:15: 12 lines"
    ]  # two spaces count as one


def test_equal_runs_are_found_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text(
        f"import x\ndef f(offset):\n{TWELVE}\n\n    # why\n    return line_3\n"
    )
    (tmp_path / "src" / "b.py").write_text(
        f"import y\ndef g(offset):\n{TWELVE}\n    return line_3\n"
    )
    monkeypatch.setattr(house, "ROOT", tmp_path)
    monkeypatch.setattr(house, "SOURCE", tmp_path / "src")
    assert house.shared_lines() == ["src/a.py:3 and src/b.py:3: 13 lines"]
    assert house.shared_lines(least=14) == []


def test_the_times_are_read_from_what_the_benchmarks_print() -> None:
    _, sampling = house.BENCHMARKS["sampling.py"]
    line = (
        "normal, σ = 1      5   50     5000      0.146     0.006 (    0.87)   0.0061 rejection     "
        " 11.01     1768  10: yes"
    )
    assert sampling(line) == {"normal, σ = 1, d=5": 0.0061}
    _, worst = house.BENCHMARKS["worst_case.py"]
    assert worst('{"radius": 0.1, "ball_seconds": 0.4, "worst_case_seconds": 1.3}\n') == {
        "worst_case, radius 0.1": 1.3,
        "ball, radius 0.1": 0.4,
    }
