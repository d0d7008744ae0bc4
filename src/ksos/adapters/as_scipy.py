"""A density of one feature as a distribution of SciPy's new interface.

``scipy.stats.make_distribution`` makes a class of any object with the methods below. SciPy derives
everything else from them: arithmetic, mixtures, truncation, order statistics.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np

from ksos.density import SoSDensity, TableDensity

_FIRST = (1, 15)  # the first version of SciPy with make_distribution
_CUSTOM = (1, 16)  # since which it takes objects like those below


def as_scipy(p: Any) -> Any:
    """An instance of a class of ``scipy.stats.make_distribution`` for a density of one feature."""
    import scipy
    from scipy import stats  # heavy, and needed here alone

    version = tuple(int(part) for part in scipy.__version__.split(".")[:2])
    if version < _FIRST:
        raise ImportError(
            f"to_scipy() needs SciPy 1.15 or newer, which has make_distribution; SciPy"
            f" {scipy.__version__} is installed: pip install --upgrade scipy"
        )
    if isinstance(p, SoSDensity) and p.measure.atoms is not None:
        raise ValueError(
            f"to_scipy() needs a density by volume; this one is on {p.measure!r}, and SciPy makes"
            " continuous distributions alone"
        )
    answers: Any = OneFeature(p) if isinstance(p, SoSDensity) else OneColumn(p)
    if version >= _CUSTOM:
        return stats.make_distribution(answers)()
    # SciPy 1.15 reads an old distribution, and looks for formulas under these names
    low, high = answers.support["endpoints"]
    old = type("Old", (stats.rv_continuous,), {"_shape_info": lambda self: []})
    found = stats.make_distribution(old(a=low, b=high, name="OneFeature"))
    for name in ("pdf", "logpdf", "cdf", "ccdf", "icdf", "iccdf", "entropy", "mode", "sample"):
        if hasattr(answers, name):
            setattr(found, f"_{name}_formula", getattr(answers, name))
    for kind in ("raw", "central", "standardized") if hasattr(answers, "moment") else ():
        formula = lambda _, order, kind=kind: answers.moment(order, kind)  # noqa: E731
        setattr(found, f"_moment_{kind}_formula", formula)
    return found()


class OneFeature:
    """What SciPy asks of a distribution, answered by a density of one feature.

    Points come in arrays of any shape, orders of moments as floats.
    """

    __make_distribution_version__ = "1.16.0"

    parameters: tuple[Any, ...] = ()

    def __init__(self, density: SoSDensity) -> None:
        self.density = density.to(None).by_volume().with_feature_names(None)

    @cached_property
    def support(self) -> dict[str, Any]:
        """The ends of the measure."""
        return {"endpoints": self.density.measure.boundary(0), "inclusive": (True, True)}

    # The density of −x, whose lower tail is the upper one with all of its digits.
    @cached_property
    def _mirrored(self) -> SoSDensity:
        return self.density.affine(-1.0)

    def pdf(self, x: Any) -> np.ndarray:
        """Density with respect to volume."""
        return np.exp(self.logpdf(x))

    def logpdf(self, x: Any) -> np.ndarray:
        """Logarithm of the density."""
        return _at(self.density.logpdf, x)

    def cdf(self, x: Any) -> np.ndarray:
        """Distribution function."""
        return _at(self.density.cdf, x)

    def ccdf(self, x: Any) -> np.ndarray:
        """P(X > x), small values with all of their digits."""
        return _at(self._mirrored.cdf, -np.asarray(x))

    def icdf(self, q: Any) -> np.ndarray:
        """Quantile."""
        return _at(lambda rows: self.density.ppf(rows[:, 0]), q)

    def iccdf(self, q: Any) -> np.ndarray:
        """The x with P(X > x) = q."""
        return -_at(lambda rows: self._mirrored.ppf(rows[:, 0]), q)

    def entropy(self) -> float:
        """Differential entropy."""
        return float(self.density.entropy())

    def mode(self) -> Any:
        """The point of the largest density."""
        return self.density.mode()[0]

    def moment(self, order: Any, kind: str) -> float:
        """Moment about zero, about the mean, or that in units of the standard deviation."""
        found = self.density.moment(order, central=kind != "raw")
        if kind == "standardized":
            found /= float(self.density.moment(2, central=True)) ** (0.5 * float(order))
        return found

    def sample(self, shape: Any, full_shape: Any = None, *, rng: Any = None) -> np.ndarray:
        """Independent samples. SciPy 1.15 passes two shapes, of which the second one counts."""
        wanted = shape if full_shape is None else full_shape
        return self.density.rvs(int(np.prod(wanted)), rng).reshape(wanted)


class OneColumn:
    """The same of a column of a table; SciPy finds moments and entropy by quadrature, and samples
    by inversion.
    """

    __make_distribution_version__ = "1.16.0"

    parameters: tuple[Any, ...] = ()

    def __init__(self, density: TableDensity) -> None:
        self.density = TableDensity(replace(density.columns, make=None), density.parts)
        (column,) = density.columns.listed
        if column.has_masses or column.atoms:
            raise ValueError(
                f"SciPy makes continuous distributions alone, and values of {column.name!r} have"
                " masses; condition on an interval without them, or use cdf and ppf"
            )
        self.support = {"endpoints": (column.low, column.high), "inclusive": (True, True)}

    def logpdf(self, x: Any) -> np.ndarray:
        """Logarithm of the density."""
        low, high = self.support["endpoints"]
        inside = np.where((low < x) & (x < high), x, np.nan)
        found = _at(self.density.logpdf, inside)
        return np.where(np.isnan(inside) & ~np.isnan(x), -np.inf, found)

    def cdf(self, x: Any) -> np.ndarray:
        """Distribution function."""
        return _at(lambda rows: self.density.cdf(rows[:, 0]), x)

    def icdf(self, q: Any) -> np.ndarray:
        """Quantile."""
        return _at(lambda rows: self.density.ppf(rows[:, 0]), q)


# ``ask``, which takes rows, of the entries of an array of any shape, and NaN of NaN.
def _at(ask: Any, x: Any) -> np.ndarray:
    x = np.asarray(x, dtype=np.float64)
    out, known = np.full(x.shape, np.nan), ~np.isnan(x)  # SciPy puts NaN where it knows better
    if np.any(known):
        out[known] = ask(x[known][:, None])
    return out
