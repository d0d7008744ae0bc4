"""The options of ``ksos fit``: those of the estimator, with its own tables of choices and its own defaults."""

from __future__ import annotations

import argparse
import inspect
from typing import TYPE_CHECKING, Any

from ksos.cli import values

if TYPE_CHECKING:
    from ksos.measures import Box

__all__ = ["add_fit_options", "box_measure", "estimator_parameters"]


def add_fit_options(parser: argparse.ArgumentParser) -> None:
    """Add one option per parameter of :class:`ksos.KernelSoSDensity` that words can express."""
    from ksos.bandwidth import RULES
    from ksos.estimators.density import MOST_SUPPORT_POINTS, OBJECTIVES, PENALTIES
    from ksos.kernels import KERNELS
    from ksos.solvers import SOLVERS
    from ksos.support import SELECTIONS

    defaults = _defaults()
    model = parser.add_argument_group("the density")
    objective = parser.add_argument_group("the objective")
    solver = parser.add_argument_group("the solver")

    def option(
        group: Any, flag: str, text: str, *, parameter: str | None = None, choices: list[str] | None = None, **settings: Any
    ) -> None:
        parameter = parameter or flag.removeprefix("--").replace("-", "_")
        listed = "" if choices is None else f": {', '.join(choices)}"
        default = "" if defaults[parameter] is None else f" (default: {defaults[parameter]})"
        settings = {"metavar": "NAME" if choices else None, **settings}
        group.add_argument(flag, dest=parameter, default=argparse.SUPPRESS, choices=choices, help=f"{text}{listed}{default}", **settings)

    option(model, "--kernel", "the model kernel", choices=list(KERNELS))
    option(
        model,
        "--bandwidth",
        f"{', '.join(RULES)}, a number, or one per feature separated by commas",
        type=values.numbers_or(list(RULES)),
        metavar="SIGMA",
    )
    option(model, "--support", "how to choose the support points among the rows", choices=list(SELECTIONS))
    option(
        model,
        "--n-support",
        f"the most support points to use (default: all distinct rows, up to {MOST_SUPPORT_POINTS})",
        type=values.count,
        metavar="M",
    )
    for flag, side in (("--low", "lower"), ("--high", "upper")):
        model.add_argument(
            flag,
            type=values.numbers,
            metavar="LIST",
            help=f"{side} bounds of the box on which the density lives: one number, or one per feature separated by commas; inf for none",
        )
    option(objective, "--objective", "the distance to the data", choices=list(OBJECTIVES))
    option(
        objective,
        "--embedding-bandwidth",
        "bandwidth of the kernel that measures MMD, a number or one per feature (default: the model's)",
        type=values.numbers,
        metavar="SIGMA",
    )
    option(
        objective,
        "--landmarks",
        "project embeddings on this many random rows (default: on the support points)",
        type=values.count,
        metavar="L",
    )
    option(objective, "--penalty", "what is regularized", choices=list(PENALTIES))
    option(objective, "--regularization", "its weight, a number or auto", type=values.number_or(["auto"]), metavar="LAMBDA")
    option(solver, "--solver", "the algorithm", choices=["auto", *SOLVERS])
    option(solver, "--tol", "the gap to the optimum at which to stop", type=float, metavar="GAP")
    option(solver, "--max-iter", "the most iterations (default: the solver's own limit)", type=values.count, metavar="N")
    option(solver, "--time-limit", "the most seconds in the solver (default: no limit)", type=float, metavar="SECONDS")
    option(
        solver,
        "--seed",
        "for every random choice (default: a new one each time)",
        parameter="random_state",
        type=values.seed,
        metavar="SEED",
    )


def estimator_parameters(arguments: argparse.Namespace) -> dict[str, Any]:
    """The parameters of the estimator that were given on the command line."""
    return {name: value for name, value in vars(arguments).items() if name in _defaults() and name != "verbose"}


def box_measure(arguments: argparse.Namespace, d: int) -> Box | None:
    """The box measure that ``--low`` and ``--high`` describe, or None where neither is given."""
    import numpy as np

    from ksos.measures import Box

    if arguments.low is None and arguments.high is None:
        return None
    sides = (-np.inf if arguments.low is None else arguments.low, np.inf if arguments.high is None else arguments.high)
    return Box(*(np.full(d, side) if np.ndim(side) == 0 else side for side in sides))


def _defaults() -> dict[str, Any]:
    from ksos import KernelSoSDensity

    return {name: parameter.default for name, parameter in inspect.signature(KernelSoSDensity).parameters.items()}
