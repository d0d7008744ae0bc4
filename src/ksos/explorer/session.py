"""The samples of a page and what its tabs fit to them: one fit at a time, each of which can be
canceled. While a slider moves, they are drafts.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import OrderedDict
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ksos.data import Learned, learn
from ksos.density import Columns, TableDensity
from ksos.estimators import OBJECTIVES, KernelSoSDensity
from ksos.ground import (
    Run,
    as_choice,
    as_count,
    as_feature_names,
    as_features,
    as_masses,
    as_points,
    as_positive,
    column_names,
    is_table,
    six_digits,
    to_numpy,
)
from ksos.kernels import KERNELS
from ksos.solvers import SOLVERS, Auto, Progress, Solution

DRAFTS = {"squared_mmd": 1e-4, "mmd": 1e-3, "likelihood": 1e-2}
"""The gap of a draft, by objective: a fit with L-BFGS that takes a fraction of the time, and that
looks like the optimum.
"""
REFERENCES = ("none", "normal", "mixture")
MOST_FEATURES = 6  # shown at once: the panels of more are too small
MOST_SUPPORT = 300  # so that a fit takes about a second
WIDEST = 8.0  # a factor of the automatic bandwidth, either way: beyond it, K is near 11ᵀ or I
_RANGES = {
    # the page computes powers of two, and rounds
    "scale": ((1.0 - 1e-9) / WIDEST, (1.0 + 1e-9) * WIDEST),
    # in units of w₀: a penalty below rounding, and one that decides everything
    "regularization": (1e-9, 1e3),
    "n_support": (1, MOST_SUPPORT),
}
"""What the sliders of a page can ask for."""
_HELD_OUT = 5  # every fifth row, as in five folds
_FEWEST = 10  # rows of which some are held out: below, each one is needed
_MOST_TABS = 32  # more than a person has open; each keeps a fit in memory
_LISTEN = 0.05  # seconds between looks at whether a fit was canceled: shorter than one notices


@dataclass(frozen=True)
class Settings:
    """What a page asks for: ``scale`` times the automatic bandwidth, λ in units of w₀ (None:
    automatic).
    """

    features: tuple[int, ...]
    scale: float = 1.0
    regularization: float | None = None
    n_support: int = 100
    reference: str = "none"
    objective: str = "squared_mmd"
    kernel: str = "gaussian"
    draft: bool = False
    """Whether a gap that no figure shows will do: while a slider moves."""

    @classmethod
    def of(cls, asked: Any, d: int) -> Settings:
        """From the words of a request about samples with ``d`` features."""
        known = cls.__dataclass_fields__.keys()
        if not isinstance(asked, dict) or not asked.keys() <= known:
            raise ValueError(
                f"a fit is asked for with {', '.join(sorted(known))}; got"
                f" {sorted(asked) if isinstance(asked, dict) else asked!r}"
            )
        fields: dict[str, Any] = {"features": (0,), **asked}
        self = cls(**fields)
        features = tuple(as_features(self.features, d))
        if len(features) > MOST_FEATURES:
            raise ValueError(
                f"a page shows at most {MOST_FEATURES} features at once; got {len(features)};"
                " choose fewer"
            )
        as_count(self.n_support, "n_support")
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= as_positive(value, name) <= high:
                raise ValueError(f"{name} must be from {low:.6g} to {high:.6g}; got {value!r}")
        as_choice(self.reference, "reference", REFERENCES)
        as_choice(self.objective, "objective", OBJECTIVES)
        if as_choice(self.kernel, "kernel", KERNELS) != "gaussian" and self.reference != "none":
            raise ValueError(
                f"a reference needs a Gaussian kernel; got {self.kernel!r} with"
                f" {self.reference!r}; choose another kernel, or no reference"
            )
        if not isinstance(self.draft, bool):
            raise TypeError(f"draft must be true or false; got {self.draft!r}")
        return replace(self, features=features)


class Cancelled(Exception):
    """The fit was canceled, or another one of the same tab has taken its place."""


@dataclass(frozen=True)
class Samples:
    """Rows (n, d) with names and masses; which rows are fitted and which are held out; and the
    lines of Python that read them. Of a table with text or gaps, the ``columns``, and the numbers
    of levels among the points.
    """

    points: np.ndarray
    names: tuple[str, ...]
    weights: np.ndarray | None
    how_to_read: str
    columns: Columns | None = None

    @classmethod
    def of(cls, X: Any, sample_weight: Any, feature_names: Any, how_to_read: str) -> Samples:
        """Checked samples."""
        learned = learn(X) if is_table(X) and feature_names is None else Learned([])
        if (columns := learned.columns) is not None:
            weights = None if sample_weight is None else as_masses(sample_weight, learned.n_rows)
            weights = None if weights is None else weights[learned.rows]
            return cls(learned.cells, columns.names or (), weights, how_to_read, columns)
        named = column_names(X) if feature_names is None else feature_names
        points = to_numpy(as_points(X))
        n, d = points.shape
        weights = None if sample_weight is None else as_masses(sample_weight, n)
        return cls(
            points,
            as_feature_names([f"x{k + 1}" for k in range(d)] if named is None else named, d),
            weights,
            how_to_read,
        )

    @property
    def n_held_out(self) -> int:
        """How many rows are held out."""
        n = self.points.shape[0]
        return n // _HELD_OUT if n >= _FEWEST else 0

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Numbers of the rows that are fitted and of those held out: the same every time."""
        order = np.random.default_rng(0).permutation(self.points.shape[0])
        return np.sort(order[self.n_held_out :]), np.sort(order[: self.n_held_out])

    def part(self, rows: np.ndarray, features: tuple[int, ...]) -> tuple[Any, np.ndarray | None]:
        """Points, or a table, and weights of some rows."""
        weights = None if self.weights is None else self.weights[rows]
        return self.table(self.points[rows][:, list(features)], features), weights

    def table(self, points: np.ndarray, features: tuple[int, ...]) -> Any:
        """Points of some features, with the levels that numbers stand for."""
        if self.columns is None:
            return np.ascontiguousarray(points)
        return self.columns.take(features).frame(points)


@dataclass(frozen=True)
class Fitted:
    """A fit, what it was asked for, and what the library warned of."""

    settings: Settings
    parameters: dict[str, Any]
    """Of :class:`KernelSoSDensity`, as a program would give them."""
    solution: Solution
    density: Any
    estimator: KernelSoSDensity
    score: float | None
    warned: tuple[str, ...]
    seconds: float
    processor_seconds: float


@dataclass
class Tab:
    """What one tab of the browser shows."""

    fitted: Fitted | None = None
    progress: Progress | None = None
    stop: threading.Event = field(default_factory=threading.Event)
    turn: int = 0

    def require_fitted(self) -> Fitted:
        """The fit that questions are about."""
        if self.fitted is None:
            raise ValueError("nothing has been fitted yet; ask for a fit first")
        return self.fitted


class Session:
    """The samples, the tabs, and one lock: whatever is computed, fits come one after the other."""

    def __init__(self, samples: Samples) -> None:
        self.samples = samples
        self._tabs: OrderedDict[str, Tab] = OrderedDict()
        self._tabs_lock, self._work = threading.Lock(), threading.Lock()
        self._automatic: dict[tuple[Any, ...], KernelSoSDensity] = {}
        self._last: Fitted | None = None

    @property
    def last(self) -> Fitted:
        """The last fit of any tab."""
        return Tab(self._last).require_fitted()

    def tab(self, name: str) -> Tab:
        """The tab with this name, made when it is first seen; those not seen for longest are
        forgotten.
        """
        with self._tabs_lock:
            tab = self._tabs.setdefault(name, Tab())
            self._tabs.move_to_end(name)
            while len(self._tabs) > _MOST_TABS:
                self._tabs.popitem(last=False)[1].stop.set()
            return tab

    def cancel(self, name: str) -> None:
        """End the fit of a tab at its next certificate."""
        self.tab(name).stop.set()

    def close(self) -> None:
        """End every fit."""
        with self._tabs_lock:
            for tab in self._tabs.values():
                tab.stop.set()

    def fit(self, name: str, settings: Settings, turn: int = 0) -> Fitted:
        """Fit what the tab asks for in place of what it is fitting; raises :class:`Cancelled` if
        that happens to this one.

        ``turn`` counts the fits of a tab: one that arrives after its successor is not run. A fit
        that is canceled is answered at once; it ends by itself as soon as the step that it is at
        is over.
        """
        tab, stop = self.tab(name), threading.Event()
        with self._tabs_lock:
            if turn < tab.turn:
                raise Cancelled
            tab.stop.set()
            tab.stop, tab.progress, tab.turn = stop, None, turn
        done: Future[Fitted] = Future()
        threading.Thread(
            target=self._work_on, args=(done, tab, settings, stop), name="ksos fit", daemon=True
        ).start()
        while not done.done() and not stop.is_set():
            wait([done], timeout=_LISTEN)
        if not done.done():
            raise Cancelled
        return done.result()

    def _work_on(
        self, done: Future[Fitted], tab: Tab, settings: Settings, stop: threading.Event
    ) -> None:
        try:
            with self._work, Run(canceled=stop.is_set):
                done.set_result(self._fit(tab, settings, stop))
        # who waits must hear of it, whatever it is
        except BaseException as error:
            done.set_exception(error)
        finally:
            if tab.stop is stop:
                tab.progress = None

    def _fit(self, tab: Tab, settings: Settings, stop: threading.Event) -> Fitted:
        if tab.fitted is not None and tab.fitted.settings == settings:
            self._last = tab.fitted
            return tab.fitted

        def watch(progress: Progress) -> bool:
            tab.progress = Progress(
                progress.n_iter, progress.objective, progress.gap, progress.time
            )
            return stop.is_set()

        # filters belong to the process: another reason for the lock
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            parameters, shortcut = self._parameters(settings, stop)
            fitted, held_out = self.samples.rows()
            X, weights = self.samples.part(fitted, settings.features)
            began, used = time.perf_counter(), time.thread_time()
            mixed = self.samples.columns is not None
            told = {**parameters, **shortcut}
            if not mixed:
                named: Any = SOLVERS.get(told.get("solver", "auto"), Auto())
                told["solver"] = replace(named, callback=watch)
            estimator = KernelSoSDensity(**told).fit(X, sample_weight=weights)
            spent = time.perf_counter() - began, time.thread_time() - used
            if stop.is_set():
                raise Cancelled
            Z, held_weights = self.samples.part(held_out, settings.features)
            p: Any = estimator.distribution_
            score = (
                float(np.average(to_numpy(p.logpdf(Z)), weights=held_weights)) if len(Z) else None
            )
            names = [self.samples.names[k] for k in settings.features]
            density = p if isinstance(p, TableDensity) else p.with_feature_names(names)
            said = dict.fromkeys(
                str(one.message) for one in warned if issubclass(one.category, UserWarning)
            )
            tab.fitted = Fitted(
                settings,
                parameters,
                estimator.solution_,
                density,
                estimator,
                score,
                tuple(said),
                *spent,
            )
            self._last = tab.fitted
            return tab.fitted

    # The estimator's parameters, and what replaces some of them to the same effect in less time.
    def _parameters(
        self, settings: Settings, stop: threading.Event
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        automatic = self._automatic_fit(settings, stop)
        strength = (
            automatic.relative_regularization_
            if settings.regularization is None
            else settings.regularization
        )
        mixed, widths = self.samples.columns is not None, ["bandwidth", "embedding_bandwidth"]
        parameters: dict[str, Any] = {
            **{
                name: _scaled(getattr(automatic, f"{name}_"), settings.scale)
                for name in widths[: 1 if mixed else 2]
            },
            "relative_regularization": six_digits(float(strength)),
            "n_support": settings.n_support,
            "reference": None if settings.reference == "none" else settings.reference,
            "objective": settings.objective,
            "random_state": 0,
        }
        if settings.kernel != "gaussian":
            parameters["kernel"] = settings.kernel
        if settings.draft and not mixed:
            parameters |= {"solver": "lbfgs", "tol": DRAFTS[settings.objective]}
        known = (
            {}
            if mixed or settings.reference == "none"
            else {"reference": automatic.solution_.space.measure}
        )
        return parameters, known

    # What the library itself chooses for these features, kernel, reference and objective, ended
    # before it is solved.
    def _automatic_fit(self, settings: Settings, stop: threading.Event) -> KernelSoSDensity:
        key = (settings.features, settings.kernel, settings.reference, settings.objective)
        if stop.is_set():
            raise Cancelled
        if key not in self._automatic:
            X, weights = self.samples.part(self.samples.rows()[0], settings.features)
            reference = None if settings.reference == "none" else settings.reference
            # the fit of a table chooses its settings as it goes
            mixed = self.samples.columns is not None
            found = KernelSoSDensity(
                kernel=settings.kernel,
                reference=reference,
                objective=settings.objective,
                solver="auto" if mixed else Auto(callback=lambda _: True),
                random_state=0,
            ).fit(X, sample_weight=weights)
            if stop.is_set():
                # what was cut short is not the library's choice
                raise Cancelled
            self._automatic[key] = found
        return self._automatic[key]


# A bandwidth, one per feature, or a metric, widened: as plain numbers.
def _scaled(bandwidth: np.ndarray, scale: float) -> Any:
    if not bandwidth.size:  # of categories alone
        return "auto"
    # what the page shows is what is fitted
    return six_digits(bandwidth * (scale * scale if bandwidth.ndim == 2 else scale))
