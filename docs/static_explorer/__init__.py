"""The explorer of the site: the page of ``ksos explore`` with certified fits made beforehand, so
that it needs no Python.

Files of the page come from ``ksos/explorer/static`` as they are, but for ``source.js``, which asks
no server.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterator
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from joblib import Parallel, delayed
from sklearn.datasets import load_iris, make_moons

from ksos import mmd
from ksos.density import SoSDensity
from ksos.explorer import answers
from ksos.explorer.session import Fitted, Samples, Session, Settings
from ksos.space.embedding import MeanEmbedding

__all__ = ["SETS", "Grid", "build"]

HERE = Path(__file__).parent
PAGE = files("ksos.explorer") / "static"

FEATURES = [(0, 1), (0,), (1,)]
LARGEST = 5_000_000  # bytes, of the whole page: it is loaded by people who only want a look
EXACT = 1e-9  # of the largest value: what columns that are left out of a factor may change
NOTE = (
    "Fits were made beforehand; to fit your own data and to save models, run ksos explore data.csv."
    " Levels are those of a grid."
)


class Grid(NamedTuple):
    """The settings for which there are fits, in equal steps.

    The bandwidth by powers of 2 of the automatic one, λ by powers of 10 (the automatic one comes
    with them), the most support points.
    """

    scales: tuple[float, ...] = (-1.0, -0.5, 0.0, 0.5, 1.0)
    strengths: tuple[int, ...] = (-5, -4, -3, -2, -1, 0)
    support: tuple[int, ...] = (20, 40, 60)

    @property
    def sliders(self) -> dict[str, list[float]]:
        """Ends, step and first place of every slider."""
        found = {
            "scale": (self.scales, 0.0),
            "strength": (self.strengths, -3),
            "support": (self.support, self.support[-1]),
        }
        return {
            name: [steps[0], steps[-1], steps[1] - steps[0], first]
            for name, (steps, first) in found.items()
        }


WHOLE = Grid()


class Set(NamedTuple):
    """Samples: a title, names of the features, the lines of Python that make them, and what these
    give.
    """

    title: str
    names: list[str]
    lines: str
    points: np.ndarray


SETS = {
    "moons": Set(
        "Two moons",
        ["east", "north"],
        "from sklearn.datasets import make_moons\nX, _ = make_moons(250, noise=0.08,"
        " random_state=0)",
        make_moons(250, noise=0.08, random_state=0)[0],
    ),
    "iris": Set(
        "Petals of irises",
        ["length, cm", "width, cm"],
        "from sklearn.datasets import load_iris\nX = load_iris().data[:, 2:]",
        load_iris().data[:, 2:],
    ),
}


def build(folder: Path, cache: Path, grid: Grid = WHOLE) -> None:
    """Write the page into ``folder``; fits of an earlier time are taken from ``cache`` if nothing
    of this package has changed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in PAGE.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    source = (HERE / "source.js").read_text(encoding="utf-8")
    titles = json.dumps([[name, one.title] for name, one in SETS.items()])
    (folder / "source.js").write_text(source.replace("[/* sets */]", titles), encoding="utf-8")
    (folder / "integrals.js").write_bytes((HERE / "integrals.js").read_bytes())
    own = (
        (HERE / "__init__.py").read_bytes()
        + (files("ksos.explorer") / "answers.py").read_bytes()
        + repr(grid).encode()
    )
    kept = cache / hashlib.sha256(own).hexdigest()[:16]
    kept.mkdir(parents=True, exist_ok=True)
    missing = [name for name in SETS if not (kept / f"fits-{name}.js").exists()]
    scripts = Parallel(n_jobs=-1)(delayed(_script)(name, grid) for name in missing)
    for name, script in zip(missing, scripts, strict=True):
        (kept / f"fits-{name}.js").write_text(script, encoding="utf-8")
    for name in SETS:
        (folder / f"fits-{name}.js").write_bytes((kept / f"fits-{name}.js").read_bytes())
    if (size := sum(file.stat().st_size for file in folder.glob("*.*"))) > LARGEST:
        raise ValueError(
            f"the explorer of the site has {size} bytes, more than {LARGEST}; make fewer fits"
        )


def _script(name: str, grid: Grid) -> str:
    """The fits of a set, as a script."""
    one = SETS[name]
    data = Samples.of(one.points, None, one.names, one.lines)
    fits = dict(_fits(data, grid))
    programs = [record["program"] for record in fits.values()]
    head = os.path.commonprefix(programs)  # noqa: RUF071 - of letters, as wanted here
    tail = os.path.commonprefix([text[::-1] for text in programs])[::-1]  # noqa: RUF071
    for record in fits.values():
        record["program"] = record["program"].removeprefix(head).removesuffix(tail)
    words = {
        "references": ["none"],
        "objectives": ["squared_mmd"],
        "kernels": ["gaussian"],
        "sliders": grid.sliders,
        "note": NOTE,
    }
    whole = {"data": answers.described(data) | words, "program": [head, tail], "fits": fits}
    text = json.dumps(whole, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return f'"use strict";\n(globalThis.ksosFits ??= {{}})["{name}"] = {text};\n'


def _fits(data: Samples, grid: Grid) -> Iterator[tuple[str, dict[str, Any]]]:
    """(the words by which the page asks for it, the record) of every fit."""
    session = Session(data)
    for features, exponent, strength, m in product(
        FEATURES, grid.scales, [None, *grid.strengths], grid.support
    ):
        scale, power = float(f"{2.0**exponent:.4g}"), None if strength is None else 10.0**strength
        asked = {
            "features": list(features),
            "scale": scale,
            "regularization": power,
            "n_support": m,
        }
        fitted = session.fit("site", Settings.of(asked, data.points.shape[1]))
        words = [
            "+".join(map(str, features)),
            _as_in_javascript(scale),
            "automatic" if power is None else _as_in_javascript(power),
            str(m),
        ]
        yield " ".join(words), _record(fitted, data)


def _as_in_javascript(value: float) -> str:
    """A number as JavaScript writes it: 1 is no 1.0, and 1e-05 is 0.00001."""
    return f"{value:.10f}".rstrip("0").rstrip(".")


def _record(fitted: Fitted, data: Samples) -> dict[str, Any]:
    """What the server would answer, the model's numbers as bytes, with the exact MMD and the
    program.
    """
    told, p = answers.fit(fitted, data), fitted.solution.distribution
    model = answers.model(_few_columns(p))
    support, factor = np.array(model["support"]), np.array(model["factor"])
    model |= {"support": _bytes(support), "factor": _bytes(factor), "rank": factor.shape[1]}
    points, _ = data.part(data.rows()[0], fitted.settings.features)
    kernel = fitted.solution.space.embedding_kernel
    exact = mmd(p, MeanEmbedding(points, kernel=kernel), kernel=kernel)
    return told | {
        "model": model,
        "exact_mmd": float(exact),
        "program": answers.program(fitted, data)["program"],
    }


def _few_columns(p: SoSDensity) -> SoSDensity:
    """The density with as few columns as give the same values at its support points and between
    them.
    """
    X = p.support_points
    X = np.concatenate([X, 0.5 * (X + np.roll(X, 1, axis=0))])
    wanted, few = p.pdf(X), p
    for rank in range(1, p.rank):
        few = p.compress(rank=rank).density
        if np.max(np.abs(few.pdf(X) - wanted)) <= EXACT * np.max(wanted):
            return few
    return p


def _bytes(values: np.ndarray) -> str:
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f8").tobytes()).decode()
