"""Log-densities of samples, each or in the mean, however the samples come: as an array, in chunks, or where the chunks of Dask are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos._array import is_other_array, to_numpy
from ksos._validation import require_numbers
from ksos.density import SoSDensity, SoSMixture
from ksos.estimators._gathered import Checks
from ksos.estimators._samples import mean_score
from ksos.estimators._stream import require_no_weights
from ksos.sources import Chunk, Chunks, DaskChunks, as_source

__all__ = ["MeanScore", "Scorer", "Scores"]


@dataclass(frozen=True, eq=False)
class Scorer:
    """The log-densities of the rows of a chunk, whose columns are put in order by their names."""

    density: SoSDensity | SoSMixture
    checks: Checks

    def __call__(self, chunk: Chunk) -> np.ndarray:
        return self.weighted(chunk)[0]

    def weighted(self, chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
        """The same with the weights of the rows."""
        rows = self.checks.rows(chunk)[0]
        scores = to_numpy(self.density.logpdf(rows.points)) if rows.points.shape[0] else np.empty(0)
        return scores, rows.masses


@dataclass(frozen=True, eq=False)
class MeanScore:
    """Σ a_i log p(x_i) and Σ a_i over the chunks so far; a sample of weight 0 does not count, even where its density is 0."""

    scorer: Scorer
    total: float = 0.0
    mass: float = 0.0

    def update(self, chunk: Chunk) -> MeanScore:
        """These and the rows of one more chunk."""
        scores, masses = self.scorer.weighted(chunk)
        counted = masses > 0.0
        return replace(self, total=self.total + float(masses[counted] @ scores[counted]), mass=self.mass + float(masses.sum()))

    def merge(self, other: MeanScore) -> MeanScore:
        """Those of both sets of chunks."""
        return replace(self, total=self.total + other.total, mass=self.mass + other.mass)

    @property
    def value(self) -> float:
        """The mean."""
        if not self.mass > 0.0:
            raise ValueError("the mean log-density of a source needs samples of positive weight; it has none")
        return self.total / self.mass


class Scores:
    """What a fitted density estimator says of samples."""

    distribution_: SoSDensity | SoSMixture
    n_features_in_: int

    def score_samples(self, X: Any) -> np.ndarray:
        """The log-density of each sample, shape (n,); of Dask's arrays and data frames as a Dask array that is not computed yet."""
        check_is_fitted(self, "distribution_")
        if isinstance(source := as_source(X)[0], DaskChunks):
            return source.map_rows(self._scorer)
        if not is_other_array(X):
            X = validate_data(self, require_numbers(X), dtype=np.float64, order="C", reset=False)
        return self.distribution_.unnamed.logpdf(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The mean log-density of the samples, weighted by ``sample_weight``; of a source of chunks with the weights of its rows."""
        check_is_fitted(self, "distribution_")
        X, sample_weight = as_source(X, sample_weight)
        if isinstance(X, Chunks):
            require_no_weights(sample_weight)
            return X.gather(MeanScore(self._scorer)).value
        return mean_score(to_numpy(self.score_samples(X)), sample_weight)

    @property
    def _scorer(self) -> Scorer:
        """What scores a chunk, with the columns in the order of the fit."""
        names = vars(self).get("feature_names_in_")
        checks = Checks(type(self).__name__, n_features=self.n_features_in_, names=None if names is None else tuple(names))
        return Scorer(self.distribution_.unnamed, checks)
