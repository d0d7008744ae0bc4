"""What a fitted density estimator knows of the names of its columns: its density has them, and so have samples as data frames."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from sklearn import get_config
from sklearn.utils.validation import check_is_fitted

from ksos._array import to_numpy
from ksos._validation import as_choice, as_count, instead
from ksos.density import SoSDensity, SoSMixture
from ksos.data.samples import as_generator
from ksos.feature_names import frame

__all__ = ["NamedSamples"]


class NamedSamples:
    """Samples of ``distribution_``, as an array or as a data frame."""

    distribution_: SoSDensity | SoSMixture
    feature_names_in_: np.ndarray

    @instead(seed="random_state", rng="random_state")
    def sample(self, n_samples: int = 1, random_state: Any = None) -> Any:
        """Independent samples of the fitted density, shape (n_samples, d); a data frame after :meth:`set_output`."""
        check_is_fitted(self, "distribution_")
        samples = self.distribution_.rvs(as_count(n_samples, "n_samples"), rng=as_generator(random_state))
        library = vars(self).get("_sklearn_output_config", {}).get("transform", get_config()["transform_output"])
        return samples if library == "default" else frame(to_numpy(samples), self.distribution_.feature_names, library)

    def set_output(self, *, transform: str | None = None) -> Self:
        """What :meth:`sample` returns, in scikit-learn's words: "default" an array, "pandas" or "polars" a data frame; None: as it was.

        Without a choice, that of ``sklearn.set_config(transform_output=…)`` holds.
        """
        if transform is not None:
            self._sklearn_output_config = {"transform": as_choice(transform, "transform", ("default", "pandas", "polars"))}
        return self

    def _name_features(self, *others: NamedSamples) -> None:
        """Give the names of the fitted columns, if they have any, to the density, and to those of estimators fitted to the same columns."""
        if (names := vars(self).get("feature_names_in_")) is not None:
            for estimator in (self, *others):
                estimator.feature_names_in_ = names
                estimator.distribution_ = estimator.distribution_.with_feature_names(names)
