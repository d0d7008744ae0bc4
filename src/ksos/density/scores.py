"""Scores of observations under a density, and what one feature is asked: numbers, infinities, and
SciPy's interface.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.spatial.distance import cdist, pdist

from ksos.density.estimate import Estimate
from ksos.density.questions import without_underflow
from ksos.density.questions.line import crps
from ksos.density.sampling import draw_terms
from ksos.density.terms import Terms
from ksos.ground import (
    Array,
    Run,
    as_count,
    as_points,
    as_vector,
    in_order,
    is_other_array,
    is_table,
    like,
    row_blocks,
    to_numpy,
)

_GROUPS = 16  # independent groups of samples, whose spread is the error, known to a fifth
_BLOCK = 1 << 20  # distances that are held at a time: 8 MB


@without_underflow
class Scores:
    """Rows and scores of a density, which :class:`~ksos.SoSDensity` inherits."""

    terms: Terms
    feature_names: tuple[str, ...] | None
    # of what make answers are that are asked for as frames: that of the table of the fit
    _make: str = "pandas"

    @property
    def _label(self) -> tuple[tuple[str, ...] | None, str]:
        return self.feature_names, self._make

    def _points(self, X: Any, name: str = "X") -> Array:
        """Rows (n, d), the columns of a table in the order of the features."""
        d = self.terms.n_features
        return as_points(in_order(X, self.feature_names, name), name, n_features=d)

    def _rows(self, X: Any, name: str = "X") -> np.ndarray:
        return to_numpy(self._points(X, name))

    def _back(self, found: Any) -> Any:
        """Answers go back to where the density lies."""
        return like(found, self.terms.home)

    def _at(self, X: Any, ask: Callable[[Array], Array], left: float, right: float) -> Any:
        """``ask`` of rows. A density of one feature takes a number as well, and infinite values,
        where the answer is ``left`` or ``right``.
        """
        if self.terms.n_features > 1 or is_other_array(X) or is_table(X):
            return ask(self._back(self._points(X)))
        given = np.asarray(X)
        far = np.isinf(given) if given.dtype.kind == "f" else np.zeros(given.shape, dtype=bool)
        finite = np.where(far, 0.0, given) if np.any(far) else X
        found = ask(self._back(self._points(finite if np.ndim(X) else np.reshape(finite, (1, 1)))))
        if np.any(far):
            ends = np.where(far, np.where(given > 0.0, right, left), 0.0).ravel()
            found = self._back(np.where(far.ravel(), ends, to_numpy(found)))
        return found if np.ndim(X) else float(found[0])

    def _require_one_feature(self, what: str, call: str) -> None:
        if (d := self.terms.n_features) != 1:
            first = 0 if self.feature_names is None else self.feature_names[0]
            raise ValueError(
                f"{what} for one feature; this density has {d}; take one of them, as in"
                f" p.marginal([{first!r}]).{call}"
            )

    def crps(self, y: Any) -> Any:
        """Continuous ranked probability score of observations under a density of one feature.

        It is ∫ (P(x ≤ t) − 1[t ≥ y])² dt = E|x − y| − ½E|x − x'| [GneitingRaftery2007], in the
        unit of the feature. Smaller is better. It is exact to rounding, from the same panels as
        :meth:`cdf`; on a discrete measure it is a sum.

        Parameters
        ----------
        y : float, array (n,) or column (n, 1)
            The observations. The answer is a float or has shape (n,).

        Returns
        -------
        float or array (n,)

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)  # N(0, 1)
        >>> p.crps([0.0, 3.0]).round(9)
        array([0.23369498, 2.43657472])
        """
        self._require_one_feature("the CRPS is", "crps(y)")
        given = self._rows(y, "y")[:, 0] if np.ndim(y) > 1 else as_vector(y, "y")
        found = crps(self.terms.on_host, given)
        return self._back(found) if np.ndim(y) else float(found[0])

    def energy_score(self, y: Any, n_samples: int = 16_384, rng: Any = None) -> Any:
        """Energy score E‖x − y‖ − ½E‖x − x'‖ of observations [GneitingRaftery2007].

        It is the CRPS of several features. Smaller is better. The norm is Euclidean: if features
        have different units, scale them first. It is estimated from samples of the density. In one
        feature it is :meth:`crps`, which is exact.

        Parameters
        ----------
        y : array (d,) or (n, d)
            One observation, whose score is a float with its standard error as ``.error``, or rows
            of them, whose scores have shape (n,). All share the same samples.
        n_samples : int, default=16384
            Samples of the density, at least 32. The error falls with their square root.
        rng : seed or numpy.random.Generator, optional
            Source of randomness.

        Returns
        -------
        Estimate or array (n,)

        >>> import ksos
        >>> p = ksos.SoSDensity(ksos.kernels.Gaussian(2.0), [[0.0, 0.0]], [[1.0]], normalize=True)
        >>> score = p.energy_score([0.0, 0.0], rng=0)  # (√2 − 1)·√(π/2) = 0.3670…
        >>> bool(abs(score - 0.3670871) < 5 * score.error), score.error < 0.01
        (True, True)
        """
        n = as_count(n_samples, "n_samples", minimum=2 * _GROUPS)
        rows = self._rows(y if np.ndim(y) > 1 else as_vector(y, "y")[None, :], "y")
        with Run(name=f"energy score from {n} samples"):
            if rows.shape[1] == 1:
                found, errors = crps(self.terms.on_host, rows[:, 0]), np.zeros(rows.shape[0])
            else:
                found, errors = _energy_scores(self.terms.on_host, rows, n, rng)
        if np.ndim(y) > 1:
            return self._back(found)
        return Estimate(found[0], errors[0], "sampling" if rows.shape[1] > 1 else "quadrature")

    def to_scipy(self) -> Any:
        """The same distribution of one feature as one of SciPy's, for SciPy's other tools.

        It is an instance of a class that ``scipy.stats.make_distribution`` makes. Its pdf, logpdf,
        cdf, icdf, moments, entropy, mode and samples are those of this density. Arithmetic,
        ``scipy.stats.Mixture`` and ``scipy.stats.truncate`` work. It needs SciPy 1.15.

        Returns
        -------
        scipy.stats distribution

        >>> from ksos import SoSDensity, kernels
        >>> p = SoSDensity(kernels.Gaussian(2.0), [[0.0]], [[1.0]], normalize=True)  # N(0, 1)
        >>> X = 2.0 * p.to_scipy() + 1.0
        >>> round(float(X.mean()), 9), round(float(X.icdf(0.975)), 6)
        (1.0, 4.919928)
        """
        from ksos.adapters.as_scipy import as_scipy  # SciPy's statistics are heavy

        self._require_one_feature("SciPy's distributions are", "to_scipy()")
        return as_scipy(self)


def _energy_scores(p: Terms, Y: np.ndarray, n: int, rng: Any) -> tuple[np.ndarray, np.ndarray]:
    """The scores of the rows of Y and their standard errors."""
    samples = to_numpy(draw_terms(p, n, np.random.default_rng(rng), "auto"))
    each = []
    for X in np.array_split(samples, _GROUPS):
        blocks = row_blocks(Y.shape[0], X.shape[0], _BLOCK)
        near = [cdist(Y[rows], X).mean(axis=1) for rows in blocks]
        each.append(np.concatenate(near) - 0.5 * pdist(X).mean())
    return np.mean(each, axis=0), np.std(each, axis=0, ddof=1) / math.sqrt(_GROUPS)
