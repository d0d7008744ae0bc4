"""``plot``: a whole picture or none, the same bytes every time, and every refusal one line."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.image import imread

import ksos as library
from ksos.kernels import Gaussian
from ksos.measures import Discrete

Command = Callable[..., Any]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[library.DensityDisplay]:
    """Every display that a command has drawn."""
    displays: list[library.DensityDisplay] = []
    draw = library.DensityDisplay.plot

    def kept(self: library.DensityDisplay, *words: Any, **options: Any) -> library.DensityDisplay:
        displays.append(self)
        return draw(self, *words, **options)

    monkeypatch.setattr(library.DensityDisplay, "plot", kept)
    return displays


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plot") / "three.ksos"
    rng = np.random.default_rng(4)
    library.SoSDensity(
        Gaussian([1.0, 0.7, 1.3]), rng.normal(size=(5, 3)), rng.normal(size=(5, 1)), normalize=True
    ).save(path)
    return path


def test_a_picture_with_data(
    ksos: Command, model: Path, data: Path, points: np.ndarray, tmp_path: Path, shown: list[Any]
) -> None:
    before = dict(mpl.rcParams)
    done = ksos("plot", model, "--data", data, "--columns", "x,y", "-o", tmp_path / "out.png")
    assert done == (0, f"written: {tmp_path / 'out.png'} (x1, x2, 40 rows)\n", "")
    picture = imread(tmp_path / "out.png")
    assert picture.shape[:2] == (630, 900) and np.ptp(picture[..., 0]) > 0.5
    (display,) = shown
    np.testing.assert_array_equal(display.artists_[(0, 1)]["data"].get_offsets(), points)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("x", "y")
    assert (
        set(display.panels[(0, 1)].levels) == {0.5, 0.9} and "support" in display.artists_[(0, 1)]
    )
    assert len(display.figure_.axes) == 2, "with a color bar"
    assert dict(mpl.rcParams) == before
    assert [path.name for path in tmp_path.iterdir()] == ["out.png"]


@pytest.mark.parametrize(
    ("kind", "magic"), [("png", b"\x89PNG"), ("pdf", b"%PDF"), ("SVG", b"<?xml")]
)
def test_kinds_of_files_are_the_same_every_time(
    ksos: Command, model: Path, tmp_path: Path, kind: str, magic: bytes
) -> None:
    contents = []
    for name in ("a", "b"):
        assert ksos("plot", model, "-o", tmp_path / f"{name}.{kind}", "--regions", "none").code == 0
        contents.append((tmp_path / f"{name}.{kind}").read_bytes())
    assert contents[0] == contents[1] and contents[0].startswith(magic)


def test_options_of_the_picture(
    ksos: Command, model: Path, tmp_path: Path, shown: list[Any]
) -> None:
    words = ["--regions", "0.25", "--no-support", "--dpi", "40", "-o", tmp_path / "o.png"]
    assert ksos("plot", model, *words).code == 0
    assert (
        set(shown[-1].panels[(0, 1)].levels) == {0.25}
        and "support" not in shown[-1].artists_[(0, 1)]
    )
    assert imread(tmp_path / "o.png").shape[:2] == (168, 240)
    assert ksos("plot", model, "--features", "2", "--no-cdf", "-o", tmp_path / "o.png").code == 0
    assert "cdf_axes" not in shown[-1].artists_[(0,)]
    assert shown[-1].ax_.get_xlabel() == "$x_{2}$"
    assert ksos("plot", model, "--features", "2", "-o", tmp_path / "o.png").code == 0
    assert "cdf_axes" in shown[-1].artists_[(0,)]


def test_pairs_and_parts(ksos: Command, three: Path, tmp_path: Path, shown: list[Any]) -> None:
    done = ksos("plot", three, "-o", tmp_path / "o.png", "--json", "--regions", "none")
    assert json.loads(done.out) == {
        "output": str(tmp_path / "o.png"),
        "n_samples": None,
        "features": [1, 2, 3],
        "given": {},
    }
    assert shown[-1].ax_.shape == (3, 3)
    done = ksos(
        "plot",
        three,
        "--given",
        "2=0.5",
        "--features",
        "3,1",
        "-o",
        tmp_path / "o.png",
        "--json",
        "--regions",
        "none",
    )
    assert json.loads(done.out)["features"] == [3, 1] and json.loads(done.out)["given"] == {
        "2": 0.5
    }
    panel, part = (
        shown[-1].panels[(0, 1)],
        library.load(three).conditional({1: 0.5}).marginal([1, 0]),
    )
    assert panel.values[3, 9] == pytest.approx(
        part.pdf([[panel.axes[0][9], panel.axes[1][3]]])[0], rel=1e-9
    )
    assert (shown[-1].ax_.get_xlabel(), shown[-1].ax_.get_ylabel()) == ("$x_{3}$", "$x_{1}$")


def test_names_are_labels(ksos: Command, three: Path, tmp_path: Path, shown: list[Any]) -> None:
    library.load(three).with_feature_names(["$ in $", "b_c", "a"]).save(tmp_path / "named.ksos")
    (tmp_path / "d.csv").write_text("a,$ in $,b_c\n1,2,3\n0.5,0.5,0.1\n")
    words = ["--data", tmp_path / "d.csv", "--features", "$ in $,a", "--regions", "none"]
    done = ksos("plot", tmp_path / "named.ksos", *words, "-o", tmp_path / "o.png")
    assert (done.code, done.err) == (0, "")
    assert (shown[-1].ax_.get_xlabel(), shown[-1].ax_.get_ylabel()) == (r"\$ in \$", "a")
    np.testing.assert_array_equal(
        shown[-1].artists_[(0, 1)]["data"].get_offsets(), [[2.0, 1.0], [0.5, 0.5]]
    )


def test_data_of_chosen_features(
    ksos: Command, three: Path, tmp_path: Path, shown: list[Any]
) -> None:
    (tmp_path / "d.csv").write_text("a;b;c;w\n1;2;3;1\n0;0;0;0\n0.5;0.5;0.1;2\n")
    words = [
        "--data",
        tmp_path / "d.csv",
        "--delimiter",
        ";",
        "--weights",
        "w",
        "--features",
        "3,2",
        "--header",
        "--json",
    ]
    done = ksos("plot", three, *words, "-o", tmp_path / "o.png", "--regions", "none")
    assert json.loads(done.out)["n_samples"] == 2, "a row of weight 0 is not drawn"
    np.testing.assert_array_equal(shown[-1].X, [[3.0, 2.0], [0.1, 0.5]])
    assert shown[-1].ax_.get_xlabel() == "c"


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        ([], 2, "the following arguments are required: -o/--output"),
        (["-o", "out.jpg"], 2, "-o must name a file that ends in png, pdf, svg; got 'out.jpg'"),
        (["-o", "out"], 2, "ends in png, pdf, svg"),
        (["-o", "none/out.png"], 1, "there is no folder none"),
        (["-o", "o.png", "--dpi", "5"], 2, "--dpi: a whole number from 20 to 1200 was expected"),
        (["-o", "o.png", "--dpi", "1000000"], 2, "--dpi: a whole number from 20 to 1200"),
        (["-o", "o.png", "--regions", "2"], 2, "argument --regions: a list of numbers from 0 to 1"),
        (["-o", "o.png", "--regions", "0,0.5"], 1, "regions must be probabilities between 0 and 1"),
        (
            ["-o", "o.png", "--columns", "1,2"],
            2,
            "--columns is for reading a table, and there is none; name it with --data",
        ),
        (["-o", "o.png", "--no-header"], 2, "--header is for reading a table"),
        (
            ["-o", "o.png", "--data", "DATA", "--given", "1=0"],
            2,
            "--data are samples of the whole density, not of a conditional one",
        ),
        (["-o", "o.png", "--data", "DATA"], 1, "gives 2 columns, but the model in"),
        (["-o", "o.png", "--data", "none.csv"], 1, "none.csv: No such file or directory"),
    ],
)
def test_refusals(
    ksos: Command,
    three: Path,
    plain: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    what: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = ksos("plot", three, *(str(plain) if word == "DATA" else word for word in words))
    assert (done.code, done.out) == (code, "") and done.err.count("\n") == 1
    assert what in done.err
    assert list(tmp_path.iterdir()) == []


def test_too_many_features(ksos: Command, tmp_path: Path) -> None:
    library.SoSDensity(Gaussian(3.0), np.zeros((1, 9)), [[1.0]], normalize=True).save(
        tmp_path / "nine.ksos"
    )
    done = ksos("plot", tmp_path / "nine.ksos", "-o", tmp_path / "o.png")
    assert done.code == 1 and done.err.endswith(
        "9 columns, of which a figure shows at most 8; choose some with --features\n"
    )


def test_nodes_have_no_height(ksos: Command, tmp_path: Path) -> None:
    library.SoSDensity(
        Gaussian(1.0), [[0.5]], [[1.0]], Discrete([[0.0], [1.0]]), normalize=True
    ).save(tmp_path / "n.ksos")
    done = ksos("plot", tmp_path / "n.ksos", "-o", tmp_path / "o.png")
    assert done.code == 1 and "has no height to draw" in done.err


def test_without_matplotlib(
    ksos: Command, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = ksos("plot", model, "-o", tmp_path / "o.png")
    assert (
        done.code == 1
        and 'pip install "kernel-sos[plot]"' in done.err
        and done.err.count("\n") == 1
    )
    assert list(tmp_path.iterdir()) == []


def test_no_window_is_needed(model: Path, tmp_path: Path) -> None:
    program = f"""
import sys
sys.path.insert(0, {str(Path(library.__file__).parents[1])!r})
from ksos.cli import main
assert main(["plot", {str(model)!r}, "-o", {str(tmp_path / "o.png")!r}, "--regions", "none"]) == 0
assert "matplotlib.pyplot" not in sys.modules
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "o.png").stat().st_size > 1000
