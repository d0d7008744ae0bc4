"""One piece of work: fit one contestant to one sample and score it. Everything in it is seeded; a
failure becomes a record that says so.
"""

from __future__ import annotations

import os
import platform
import time
import warnings
from functools import cache

from quality.contestants import CONTESTANTS
from quality.datasets import DATASETS
from quality.records import Key, Record
from quality.scores import scores

__all__ = ["machine", "measure"]


def measure(key: Key) -> Record:
    """The record of one contestant on one sample; ``seconds`` is the processor's time of the fit
    alone, choice of parameters included.
    """
    data, contestant = DATASETS[key.dataset], CONTESTANTS[key.contestant]
    record: Record = {**key._asdict(), "d": data.d, "machine": machine()}
    split = data.split(key.n, key.seed)
    record |= {"n_train": int(split.train.shape[0]), "n_test": int(split.test.shape[0])}
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            start = time.process_time()
            fitted = contestant.fit(split.train, data.box)
            record["seconds"] = time.process_time() - start
            record |= scores(fitted, data, split, key.n, key.seed)
        record["chosen"] = fitted.chosen
        if caught:
            record["warnings"] = sorted(
                {f"{entry.category.__name__}: {entry.message}" for entry in caught}
            )
    except Exception as error:  # one failure must not stop hours of work, nor be forgotten
        record["error"] = f"{type(error).__name__}: {error}"
    return record


@cache
def machine() -> str:
    """Where and with what a record was made, so that the page can say whether times compare."""
    import numpy
    import scipy
    import sklearn

    versions = ", ".join(
        f"{library.__name__} {library.__version__}" for library in (numpy, scipy, sklearn)
    )
    return (
        f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()},"
        f" {versions}"
    )
