"""Files of mixtures and of densities with a constant that were forged: refused, whatever their
checksums say.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from densities import random_density, stacked
from forging import arrays_of, forge, forge_arrays, refuse, take_apart

from ksos import SoSDensity
from ksos.kernels import Gaussian
from ksos.measures import GaussianMixture, Normal

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def mixed(tmp_path: Path) -> bytes:
    """The file of a mixture with a corrected reference, of which a feature is integrated out, and a
    part by volume.
    """
    measure = GaussianMixture([1, 1], [[0.0, 0.0], [1.0, 0.5]], [[1.0, 2.0], [0.5, 1.0]])
    corrected = SoSDensity(
        Gaussian(0.8),
        [[0.1, 0.2], [0.5, -0.3]],
        [[0.3], [-0.2]],
        measure,
        constant=[1.0],
        normalize=True,
    )
    stacked([corrected.by_volume().marginal([1]), random_density(Gaussian(0.5), m=2)], [1, 3]).save(
        tmp_path / "mixed.ksos"
    )
    return (tmp_path / "mixed.ksos").read_bytes()


def _part(**changes: Any) -> Any:
    return lambda h: h | {"parts": [h["parts"][0] | changes, *h["parts"][1:]]}


FORGED_MIXTURES: dict[str, Any] = {
    "no parts": lambda h: h | {"parts": []},
    "parts no list": lambda h: h | {"parts": {"0": h["parts"][0]}},
    "a part too few": lambda h: h | {"parts": h["parts"][:1]},
    "a part too many": lambda h: h | {"parts": [*h["parts"], h["parts"][0]]},
    "parts in another order": lambda h: h | {"parts": h["parts"][::-1]},
    "a field too many": _part(more=1),
    "an interval in an older version": _part(within=0),
    "an interval without sides": lambda h: _part(within=0)(h) | {"format_version": 4},
    "an interval of a feature that is shown": lambda h: _part(within=1)(h) | {"format_version": 4},
    "an interval of no feature": lambda h: _part(within=True)(h) | {"format_version": 4},
    "a part is a number": lambda h: h | {"parts": [3, h["parts"][1]]},
    "version 1": lambda h: h | {"format_version": 1},
    "a kernel besides": lambda h: h | {"kernel": h["parts"][0]["kernel"]},
    "no features": _part(features=[]),
    "all features": _part(features=[0, 1]),
    "a feature twice": _part(features=[1, 1]),
    "a feature too far": _part(features=[2]),
    "a negative feature": _part(features=[-1]),
    "a flag as feature": _part(features=[True]),
    "features no list": _part(features=1),
    "a measure that holds no part": lambda h: (
        h | {"measure": {"name": "discrete", "parameters": {}}}
    ),
}


@pytest.mark.parametrize("name", FORGED_MIXTURES)
def test_forged_mixtures(name: str, tmp_path: Path, mixed: bytes) -> None:
    header, data = take_apart(mixed)
    refuse(tmp_path, forge(FORGED_MIXTURES[name](header), data))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("weights", lambda w: w * (1 + 1e-5)),
        ("weights", lambda w: w * [1.0, -1.0]),
        ("weights", lambda w: np.array([0.0, 1.0])),
        ("weights", lambda w: np.array([1.0])),
        ("weights", lambda w: w[:, None]),
        ("weights", lambda w: np.array([NAN, 1.0])),
        ("parts.0.unit_constant", lambda c: 2.0 * c),
        ("parts.0.unit_constant", lambda c: np.array([INF])),
        ("parts.0.unit_constant", lambda c: np.array([1.0, 1.0])),
        ("parts.0.unit_constant", None),
        ("parts.0.measure.weights", lambda w: 2.0 * w),
        ("parts.0.measure.covariances", lambda V: -V),
        ("parts.0.measure.means", lambda m: m[:, :1]),
        ("parts.1.unit_constant", lambda _: np.array([1.0])),
        ("parts.2.log_unit", lambda _: np.zeros(())),
    ],
)
def test_forged_arrays_of_mixtures(name: str, change: Any, tmp_path: Path, mixed: bytes) -> None:
    header, arrays = take_apart(mixed)[0], arrays_of(mixed)
    if change is None:
        del arrays[name]
    else:
        arrays[name] = change(arrays.get(name))
    refuse(tmp_path, forge_arrays(header, arrays))


def test_a_constant_belongs_to_version_2_and_to_a_finite_measure(tmp_path: Path) -> None:
    p = SoSDensity(Gaussian(0.8), [[0.1]], [[0.3]], Normal(), constant=[1.0], normalize=True)
    p.save(tmp_path / "p.ksos")
    content = (tmp_path / "p.ksos").read_bytes()
    header, data = take_apart(content)
    refuse(tmp_path, forge(header | {"format_version": 1}, data))
    arrays = {
        name: value for name, value in arrays_of(content).items() if not name.startswith("measure.")
    }
    refuse(
        tmp_path,
        forge_arrays(header | {"measure": {"name": "lebesgue", "parameters": {}}}, arrays),
        "its density has mass inf",
    )


def test_a_mixture_of_too_many_parts_says_so(tmp_path: Path) -> None:
    parts = [random_density(Gaussian(0.5 + 0.001 * k), m=1, rank=1) for k in range(300)]
    with pytest.raises(
        ValueError, match="save the components of a mixture with many parts by themselves"
    ):
        stacked(parts).save(tmp_path / "p.ksos")
