"""The audit at length: python benchmarks/audit.py [--only KIND] [--first SEED] [--scale 1.0]
[--json FILE].

Random problems from seeds, and a referee that shares no code with the library (tests/audit): its
own kernels, quadrature and gaps in extended precision, CVXPY with Clarabel where a conic solver can
answer. A finding is a "solved", "infeasible" or "rigorous" that is refuted, a number that is not
that of the density returned, an exception, a RuntimeWarning, or a Ctrl-C that was swallowed. The
exit code is 1 if there is one. With ``--scale 1`` there are 500 problems of ``minimize``, 320 worst
cases and robust fits, more than 1 000 questions, 100 mixed tables and 200
interrupts.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

# The problems and the referee are those of the tests, before this folder, which has an audit too.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from audit import problems
from audit.interrupts import Interrupts
from audit.mixed import mixed
from audit.questions import questions
from audit.referee import Finding
from quick import parse, parser_of

Ask = Callable[[int], "list[Finding] | tuple[int, list[Finding]]"]


def kinds() -> dict[str, tuple[int, Ask]]:
    """Every kind of question with how many seeds the full run takes."""
    interrupts = Interrupts()
    return {
        "minimize": (380, problems.minimize),
        "constrained": (120, problems.constrained),
        "worst case": (240, problems.worst_case),
        "robust fit": (80, problems.robust_fit),
        "questions": (150, questions),
        "mixed tables": (100, mixed),
        "interrupts at a moment": (150, interrupts.at_a_moment),
        "interrupts by a timer": (50, interrupts.by_a_timer),
    }


def examine(ask: Ask, seeds: range) -> tuple[int, list[str]]:
    """How many questions were asked, and what was found."""
    asked, found = 0, []
    for seed in seeds:
        try:
            answer = ask(seed)
        except (
            Exception
        ) as error:  # whatever is raised on a problem that is well posed is a finding
            asked, found = (
                asked + 1,
                [*found, f"seed {seed}: {type(error).__name__}: {str(error)[:200]}"],
            )
            continue
        count, findings = answer if isinstance(answer, tuple) else (1, answer)
        asked, found = asked + count, [*found, *map(str, findings)]
    return asked, found


def main() -> int:
    """Run the audit and print what it finds."""
    table = kinds()
    parser = parser_of(__doc__)
    parser.add_argument("--only", choices=list(table), help="one kind alone")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument(
        "--scale",
        type=float,
        default=1.0,
        help="how many seeds, relative to the full run (default: 1)",
    )
    parser.add_argument("--json", type=Path, help="write the findings to this file")
    arguments = parse(parser, scale=0.0)
    report: dict[str, dict[str, object]] = {}
    for name, (count, ask) in table.items():
        if arguments.only not in (None, name):
            continue
        began = time.perf_counter()
        asked, found = examine(
            ask, range(arguments.first, arguments.first + max(1, round(arguments.scale * count)))
        )
        report[name] = {
            "asked": asked,
            "findings": found,
            "seconds": round(time.perf_counter() - began, 1),
        }
        print(
            f"{name}: {asked} asked, {len(found)} findings, {report[name]['seconds']} s", flush=True
        )
        for line in found:
            print(f"    {line}")
    if arguments.json is not None:
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return int(any(entry["findings"] for entry in report.values()))


if __name__ == "__main__":
    sys.exit(main())
