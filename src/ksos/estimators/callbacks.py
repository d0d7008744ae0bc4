"""Fits tell scikit-learn's callbacks what they do, with scikit-learn 1.9 and newer: its progress
bar shows our fits. Older versions have no callbacks, and the estimators no trace of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from ksos.ground import Run

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:  # before scikit-learn 1.9

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Nothing, in the place of scikit-learn's class."""

    def with_callbacks(method: Any) -> Any:
        """The method as it is."""
        return method


__all__ = ["CallbackSupportMixin", "told_to_callbacks"]

_F = TypeVar("_F", bound=Callable[..., Any])

# a line of progress shows more news than this no better
_SECONDS_BETWEEN_TASKS = 0.1


def told_to_callbacks(fit: _F) -> _F:
    """``fit`` as the root task of the callbacks that were set, what it does as subtasks.

    A fit inside of a fit tells nothing of its own: what it does belongs to the outer one.
    """

    @wraps(fit)
    def call(self: Any, X: Any, *given: Any, **named: Any) -> Any:
        if not vars(self).get("_skl_callbacks") or Run.current().has_listener:
            return fit(self, X, *given, **named)
        root = self._init_callback_context(max_subtasks=None)
        root.call_on_fit_task_begin(estimator=self, X=X)
        # the callbacks show progress: a line of ours beside them would be one too many
        with Run(verbose=1, listener=_Teller(self, root)):
            found = fit(self, X, *given, **named)
        root.call_on_fit_task_end(estimator=self, X=X)
        return found

    return with_callbacks(call)


class _Teller:
    """Makes each of the news of a fit a task, at most ten in a second."""

    def __init__(self, estimator: Any, root: Any) -> None:
        self._estimator, self._root, self._last = estimator, root, -1.0

    def __call__(self, doing: str) -> None:
        now = time.monotonic()
        if now - self._last >= _SECONDS_BETWEEN_TASKS:
            self._last = now
            task = self._root.subcontext(task_name=doing)
            task.call_on_fit_task_begin(estimator=self._estimator)
            task.call_on_fit_task_end(estimator=self._estimator)
