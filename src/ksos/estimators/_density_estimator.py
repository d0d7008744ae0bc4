"""What every density estimator answers once it is fitted, for arrays and for sources of chunks, and
the checks they share.
"""

from __future__ import annotations

import os
from typing import Any, Self

import numpy as np
from sklearn import get_config
from sklearn.base import BaseEstimator, DensityMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted, validate_data

from ksos.data.chunk_scores import LogDensity, MeanScore, written
from ksos.data.passes import Checks, require_own_weights
from ksos.data.samples import as_generator, mean_score
from ksos.data.sources import Chunks, DaskChunks, as_source
from ksos.density import SoSDensity
from ksos.estimators._anomalies import AnomalyMixin, check_contamination
from ksos.ground.arrays import is_other_array, to_numpy
from ksos.ground.names import frame
from ksos.ground.validation import (
    as_choice,
    as_count,
    as_positive,
    instead,
    require_numbers,
    require_order,
)
from ksos.kernels import Kernel, kernel_form
from ksos.measures import Measure

__all__ = ["DensityEstimator"]


class DensityEstimator(AnomalyMixin, DensityMixin, BaseEstimator):
    """What a fitted density estimator answers, and the checks of the parameters that all of them
    have.
    """

    kernel: str | Kernel
    n_support: int | None
    measure: Measure | None
    tol: float | None
    time_limit: float | None
    verbose: int

    def score_samples(self, X: Any, *, out: str | os.PathLike[str] | None = None) -> Any:
        """The log-density of each sample, shape (n,); of a source of chunks, an iterator over such
        arrays, one for each chunk.

        With ``out``, the scores of a source go to that NPY file, and come back mapped to memory:
        neither samples nor scores need fit in it. Of arrays and data frames of Dask it is a Dask
        array, which is computed when it is asked for.
        """
        check_is_fitted(self, "distribution_")
        X = as_source(X)[0]
        if out is not None and isinstance(X, DaskChunks):
            raise ValueError(
                "out is for files and iterables; the scores of Dask objects are a Dask array, which"
                " to_zarr and others store"
            )
        if isinstance(X, Chunks):
            scores = X.each(self._of_chunk())
            return scores if out is None else written(scores, out)
        if out is not None:
            raise ValueError(
                "out is for a source of chunks: score_samples(ksos.chunks(…), out=…); np.save"
                " writes the scores of an array"
            )
        if not is_other_array(X):
            X = validate_data(
                self,
                require_numbers(require_order(self, X)),
                dtype=np.float64,
                order="C",
                reset=False,
            )
        return self.distribution_.terms.logpdf(X)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """The mean log-density of the samples, weighted by ``sample_weight``; those of a source of
        chunks come with their weights.
        """
        X, sample_weight = as_source(X, sample_weight)
        if isinstance(X, Chunks):
            check_is_fitted(self, "distribution_")
            require_own_weights(sample_weight)
            return X.gather(MeanScore(self._of_chunk())).value
        return mean_score(to_numpy(self.score_samples(X)), sample_weight)

    @instead(seed="random_state", rng="random_state")
    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Independent samples of the fitted density, shape (n_samples, d), as a data frame after
        :meth:`set_output`."""
        check_is_fitted(self, "distribution_")
        count, rng = as_count(n_samples, "n_samples"), as_generator(random_state)
        samples = self.distribution_.rvs(count, rng=rng)
        chosen = vars(self).get("_sklearn_output_config", {})
        library = chosen.get("transform", get_config()["transform_output"])
        if library == "default":
            return samples
        return frame(to_numpy(samples), self.distribution_.feature_names, library)

    def set_output(self, *, transform: str | None = None) -> Self:
        """Set what :meth:`sample` returns: "default" an array, "pandas" or "polars" a data frame.

        None changes nothing. Without a choice, that of ``sklearn.set_config(transform_output=…)``
        holds.
        """
        if transform is not None:
            choices = ("default", "pandas", "polars")
            self._sklearn_output_config = {"transform": as_choice(transform, "transform", choices)}
        return self

    def _name_features(self) -> None:
        """Give the names of the fitted columns, if they have any, to the density."""
        if (names := vars(self).get("feature_names_in_")) is not None:
            self.distribution_ = self.distribution_.with_feature_names(names)

    def __getattr__(self, name: str) -> Any:
        """Raise: results of a fit that is missing, and questions that go to the density."""
        if name.endswith("_") and not name.startswith("_") and "distribution_" not in vars(self):
            raise NotFittedError(
                f"this {type(self).__name__} is not fitted yet: call fit before {name}"
            )
        if not name.startswith("_") and hasattr(SoSDensity, name):
            own = f"{type(self).__name__} has no {name!r}: its density has one"
            raise AttributeError(f"{own}; use est.distribution_.{name}")
        return super().__getattribute__(name)  # raises again, with the cause if there is one

    def _of_chunk(self) -> LogDensity:
        names = vars(self).get("feature_names_in_")
        known = Checks(
            type(self).__name__,
            n_features=self.n_features_in_,
            names=None if names is None else tuple(names),
        )
        return LogDensity(known, self.distribution_.with_feature_names(None))

    def _check_common(self) -> None:
        """Refuse what can be refused before the data are looked at."""
        kernel_form(self.kernel)
        if self.n_support is not None:
            as_count(self.n_support, "n_support")
        if self.measure is not None and not isinstance(self.measure, Measure):
            raise TypeError(
                "measure must be a measure such as ksos.measures.Box(low, high), or None; got"
                f" {self.measure!r}"
            )
        if self.tol is not None:
            as_positive(self.tol, "tol")
        if self.time_limit is not None:
            as_positive(self.time_limit, "time_limit")
        if not isinstance(self.verbose, bool):
            as_count(self.verbose, "verbose", minimum=0)
        check_contamination(self.contamination)
