"""Classes in skpro's interfaces: a probabilistic regressor around KernelSoSConditional, a
distribution fitter around KernelSoSDensityCV, and the distribution that both give.

Without skpro the classes are there, and making an object of them raises an error that says how to
install it.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn.base import clone
from sklearn.linear_model import LinearRegression

from ksos.density import SoSDensity, mean_difference
from ksos.estimators import KernelSoSConditional, KernelSoSDensity, KernelSoSDensityCV
from ksos.estimators.conditional_distributions import (
    JointDistributions,
    Placed,
    ResidualDistributions,
)

try:
    from skpro.distfitter.base import BaseDistFitter
    from skpro.distributions.base import BaseDistribution
    from skpro.regression.base import BaseProbaRegressor
except ImportError:

    class _Missing:
        """Stands for skpro's classes."""

        def __init__(self, *_: Any, **__: Any) -> None:
            raise ImportError(
                f"{type(self).__name__} needs skpro, which is not installed:"
                ' pip install "kernel-sos[skpro]"'
            )

    BaseDistFitter = BaseDistribution = BaseProbaRegressor = _Missing


class KernelSoSDistribution(BaseDistribution):
    """Distributions of one column as a distribution of skpro, with exact energies.

    :meth:`KernelSoSProbaRegressor.predict_proba` and :meth:`KernelSoSDistFitter.proba` make it.

    Parameters
    ----------
    distributions : ResidualDistributions, JointDistributions or OneDensity
        Answers questions about the distribution in every row.
    placed : tuple of arrays
        What it asks of every row: the first axis of each array is the rows.
    index, columns : pandas.Index, optional
        Labels of the rows and of the column. Default: one scalar distribution.

    Examples
    --------
    >>> from ksos.adapters import KernelSoSDistFitter  # doctest: +SKIP
    >>> p = KernelSoSDistFitter().fit(np.linspace(0.0, 1.0, 50)).proba()  # doctest: +SKIP
    >>> bool(p.energy(0.5) - 0.5 * p.energy() < 0.2)  # doctest: +SKIP
    True
    """

    _tags = {  # noqa: RUF012 - skpro reads it and does not write to it
        "capabilities:approx": ["pdfnorm"],
        "capabilities:exact": ["mean", "var", "energy", "pdf", "log_pdf", "cdf", "ppf"],
        "distr:measuretype": "continuous",
        "distr:paramtype": "nonparametric",
    }

    def __init__(
        self,
        distributions: ResidualDistributions | JointDistributions | OneDensity,
        placed: Placed,
        index: Any = None,
        columns: Any = None,
    ) -> None:
        self.distributions, self.placed = distributions, placed
        super().__init__(index=index, columns=columns)

    def _iloc(self, rowidx: Any = None, colidx: Any = None) -> Self:
        if np.ndim(rowidx) == 0 and np.ndim(colidx) == 0 and None not in (rowidx, colidx):
            return self._iat(rowidx, colidx)
        rows, columns = (
            np.arange(n) if at is None else np.atleast_1d(np.arange(n)[at])
            for n, at in zip(self.shape, (rowidx, colidx), strict=True)
        )
        placed = tuple(one[rows] for one in self.placed)
        labels = self.index[rows], self.columns[columns]
        return type(self)(self.distributions, placed, *labels)

    def _iat(self, rowidx: Any = None, colidx: Any = None) -> Self:
        return type(self)(self.distributions, tuple(one[[rowidx]] for one in self.placed))

    def _shaped(self, found: np.ndarray) -> Any:
        return np.reshape(found, self.shape)

    def _mean(self) -> Any:
        return self._shaped(self.distributions.moments(self.placed)[0])

    def _var(self) -> Any:
        return self._shaped(self.distributions.moments(self.placed)[1] ** 2)

    def _log_pdf(self, x: Any) -> Any:
        return self._shaped(self.distributions.logpdf(self.placed, np.reshape(x, (-1, 1))))

    def _pdf(self, x: Any) -> Any:
        return np.exp(self._log_pdf(x))

    def _cdf(self, x: Any) -> Any:
        return self._shaped(self.distributions.cdf(self.placed, np.reshape(x, (-1, 1))))

    def _ppf(self, p: Any) -> Any:
        levels = np.ravel(p)
        found = np.empty(levels.shape)
        for level in np.unique(levels):
            rows = levels == level
            placed = tuple(one[rows] for one in self.placed)
            found[rows] = self.distributions.quantile(placed, np.array([level]))[:, 0, 0]
        return self._shaped(found)

    def _energy_self(self) -> Any:
        return self._energies(self.distributions.mean_difference(self.placed))

    def _energy_x(self, x: Any) -> Any:
        crps = self.distributions.crps(self.placed, np.reshape(x, (-1, 1)))
        return self._energies(crps + 0.5 * self.distributions.mean_difference(self.placed))

    # skpro sums them over the columns, of which there is one.
    def _energies(self, found: np.ndarray) -> Any:
        return found if self.ndim else found[0, 0]

    def _sample(self, n_samples: int | None = None) -> Any:
        from pandas import DataFrame, MultiIndex  # skpro's own frames

        # skpro draws from NumPy's global state, so that its seed counts here as well
        rng = np.random.default_rng(np.random.randint(2**31))
        draws = self.distributions.sample(self.placed, n_samples or 1, rng)[:, :, 0]
        if n_samples is None:
            return DataFrame(draws, self.index, self.columns) if self.ndim else draws[0, 0]
        if not self.ndim:
            return DataFrame(draws.T)
        labels = [(k, *np.atleast_1d(at)) for k in range(n_samples) for at in self.index]
        names = [None, *self.index.names]
        return DataFrame(
            draws.T.reshape(-1, 1), MultiIndex.from_tuples(labels, names=names), self.columns
        )

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """One scalar distribution, and three rows, for skpro's own tests."""
        rng = np.random.default_rng(0)
        X, y = rng.normal(size=(60, 1)), rng.normal(size=60)
        alone = KernelSoSDensity(tol=1e-4).fit(y[:, None]).distribution_
        fitted = _quick().fit(X, y)
        rows = {"index": [1, 2, 5], "columns": ["y"]}
        return [
            {"distributions": OneDensity(alone), "placed": (np.zeros((1, 1)),)},
            {**_asked(fitted, X[:3]), **rows},
        ]


class OneDensity:
    """The same density in every row."""

    def __init__(self, density: SoSDensity) -> None:
        self.density = density

    def moments(self, placed: Placed) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations, each (n, 1)."""
        everywhere = np.ones(placed[0].shape)
        return everywhere * self.density.mean(), everywhere * np.sqrt(self.density.cov()[0])

    def logpdf(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        """log p(y_i)."""
        return np.asarray(self.density.logpdf(Y))

    def cdf(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        """P(y ≤ y_i)."""
        return self.density.cdf(Y)

    def quantile(self, placed: Placed, levels: np.ndarray) -> np.ndarray:
        """Quantiles, (n, levels, 1)."""
        found = self.density.ppf(levels)[:, None]
        return np.repeat(found[None], placed[0].shape[0], axis=0)

    def crps(self, placed: Placed, Y: np.ndarray) -> np.ndarray:
        """The score of every row, (n, 1)."""
        return self.density.crps(Y)[:, None]

    def mean_difference(self, placed: Placed) -> np.ndarray:
        """E|y − y'|, (n, 1)."""
        return np.full(placed[0].shape, mean_difference(self.density.terms))

    def sample(self, placed: Placed, count: int, rng: np.random.Generator) -> np.ndarray:
        """Independent draws, (n, count, 1)."""
        n = placed[0].shape[0]
        return np.reshape(self.density.rvs(n * count, rng), (n, count, 1))


class KernelSoSProbaRegressor(BaseProbaRegressor):
    """:class:`~ksos.KernelSoSConditional` as a probabilistic regressor of skpro.

    Parameters
    ----------
    conditional : KernelSoSConditional, default=None
        What is fitted: a copy of it. None uses ``KernelSoSConditional()``.

    Attributes
    ----------
    conditional_ : KernelSoSConditional
        The fitted copy.

    Examples
    --------
    >>> from ksos.adapters import KernelSoSProbaRegressor  # doctest: +SKIP
    >>> from sklearn.datasets import load_diabetes  # doctest: +SKIP
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)  # doctest: +SKIP
    >>> p = KernelSoSProbaRegressor().fit(X[:300], y[:300]).predict_proba(X[300:])  # doctest: +SKIP
    >>> p.shape  # doctest: +SKIP
    (142, 1)
    """

    _tags = {  # noqa: RUF012 - skpro reads it and does not write to it
        "capability:multioutput": False,
        "capability:missing": True,
        "X_inner_mtype": "pd_DataFrame_Table",
        "y_inner_mtype": "pd_DataFrame_Table",
    }

    def __init__(self, conditional: KernelSoSConditional | None = None) -> None:
        self.conditional = conditional
        super().__init__()

    def _fit(self, X: Any, y: Any) -> Self:
        own = KernelSoSConditional() if self.conditional is None else clone(self.conditional)
        self._column = y.columns
        self.conditional_ = own.fit(_named(X), y.iloc[:, 0])
        return self

    def _predict_proba(self, X: Any) -> KernelSoSDistribution:
        asked = _asked(self.conditional_, _named(X))
        return KernelSoSDistribution(**asked, index=X.index, columns=self._column)

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Two quick fits for skpro's own tests."""
        return [{"conditional": _quick()}, {"conditional": _quick().set_params(transform="asinh")}]


class KernelSoSDistFitter(BaseDistFitter):
    """:class:`~ksos.KernelSoSDensityCV` as a distribution fitter of skpro, for one column.

    Parameters
    ----------
    estimator : density estimator, default=None
        What is fitted: a copy of it. None uses ``KernelSoSDensityCV()``.

    Attributes
    ----------
    estimator_ : density estimator
        The fitted copy, with its certificate in ``solution_``.

    Examples
    --------
    >>> from ksos.adapters import KernelSoSDistFitter  # doctest: +SKIP
    >>> fitter = KernelSoSDistFitter().fit(np.linspace(0.0, 1.0, 50))  # doctest: +SKIP
    >>> round(float(fitter.proba().cdf(0.5)), 2)  # doctest: +SKIP
    0.5
    """

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator
        super().__init__()

    def _fit(self, X: Any, C: Any = None) -> Self:
        if X.shape[1] != 1:
            raise ValueError(
                f"X must have one column, since a distribution of skpro has no joint density of"
                f" several; got {X.shape[1]}; fit one column, or KernelSoSDensityCV itself"
            )
        own = KernelSoSDensityCV() if self.estimator is None else clone(self.estimator)
        self.estimator_ = own.fit(X.to_numpy())
        return self

    def _proba(self) -> KernelSoSDistribution:
        one = OneDensity(self.estimator_.distribution_.by_volume())
        return KernelSoSDistribution(one, (np.zeros((1, 1)),))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """Two quick fits for skpro's own tests."""
        return [{"estimator": KernelSoSDensity(tol=1e-4)}, {"estimator": KernelSoSDensityCV(cv=3)}]


# A frame whose columns are named by text if they are not numbered; skpro has checked them.
def _named(X: Any) -> Any:
    named = [isinstance(label, str) for label in X.columns]
    return X.set_axis(X.columns.map(str), axis=1) if any(named) and not all(named) else X


# Parameters of the distributions at rows.
def _asked(fitted: KernelSoSConditional, X: Any) -> dict[str, Any]:
    distributions, placed = fitted._fitted(), fitted._rows(X)
    return {"distributions": distributions, "placed": placed}


def _quick() -> KernelSoSConditional:
    return KernelSoSConditional(
        LinearRegression(), "constant", given=None, estimator=KernelSoSDensity(tol=1e-4)
    )
