"""Every table of scikit-learn, statsmodels and vega_datasets with two columns of numbers, through
the command line.

python benchmarks/tables.py [NAME ...] [--page tables.md]

Each table is written as CSV, as it comes, and goes through ``ksos fit``, ``score``, ``sample``,
``query`` and ``plot``. A command that refuses its input is called once more with the one option
that OPTIONS has for it; what it says then counts. Commands run in this process, one BLAS thread, at
most 60 seconds of processor time each. Needs statsmodels, vega_datasets and pandas.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pkgutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from quick import parse, parser_of

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

from ksos.cli import main as ksos  # noqa: E402  (after the number of threads)

LIMIT = 60.0  # seconds of processor time
OPTIONS = {"fit": ["--clean"], "score": ["--drop-missing"], "plot": ["--features", "1,2,3"]}
"""What is added when a command has refused its input."""
COMMANDS = ("fit", "score", "sample", "query", "plot")
_SKLEARN = ("breast_cancer", "diabetes", "digits", "iris", "linnerud", "wine")


class Outcome(NamedTuple):
    """How one command ended: its exit code, seconds, the option it needed, and what it wrote to
    stderr.
    """

    code: int
    seconds: float
    option: str
    said: str


def tables(quick: bool) -> Iterator[tuple[str, Any]]:
    """(name, data frame) of every table; ``quick``: of scikit-learn's alone."""
    from sklearn import datasets

    for name in _SKLEARN:
        yield f"sklearn {name}", getattr(datasets, f"load_{name}")(as_frame=True).frame
    if quick:
        return
    import statsmodels.datasets
    from vega_datasets import local_data

    for found in pkgutil.iter_modules(statsmodels.datasets.__path__):
        if found.ispkg and found.name != "tests":
            module = importlib.import_module(f"statsmodels.datasets.{found.name}")
            with contextlib.suppress(AttributeError):
                yield f"statsmodels {found.name}", module.load_pandas().data
    for name in local_data.list_datasets():
        with contextlib.suppress(Exception):  # some hold maps and trees, which are no tables
            yield f"vega {name}", getattr(local_data, name.replace("-", "_"))()


def run(*words: str) -> tuple[int, float, str]:
    """(exit code, seconds of processor time, stderr) of a command."""
    out, err = io.StringIO(), io.StringIO()
    signal.signal(signal.SIGPROF, _too_long)
    signal.setitimer(signal.ITIMER_PROF, LIMIT)
    begun = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = ksos(list(words))
    seconds = time.process_time() - begun
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    return code, seconds, err.getvalue()


def attempt(command: str, *words: str) -> Outcome:
    """A command, once more with its option if it has refused its input."""
    code, seconds, said = run(command, *words)
    if code != 1 or command not in OPTIONS:
        return Outcome(code, seconds, "", said)
    option = OPTIONS[command]
    code, seconds, said = run(command, *words, *option)
    return Outcome(code, seconds, " ".join(option), said)


def go_through(frame: Any, folder: Path) -> dict[str, Outcome]:
    """What becomes of one table, command by command, until one fails."""
    data, model = str(folder / "table.csv"), str(folder / "model.ksos")
    frame.to_csv(data, index=False)
    words = {
        "fit": [data, "-o", model, "--seed", "0"],
        "score": [model, data],
        "sample": [model, "-n", "1000", "--seed", "0", "-o", str(folder / "samples.csv")],
        "query": [model],
        "plot": [model, "-o", str(folder / "picture.png")],
    }
    found: dict[str, Outcome] = {}
    for command in COMMANDS:
        found[command] = attempt(command, *words[command])
        if found[command].code not in (0, 3):
            break
    return found


def main() -> int:
    """Go through all tables, or those named, and print what became of them; the exit code is 1 if
    one of them did not get through.
    """
    parser = parser_of(__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help="parts of the names of the tables to take (default: all)",
    )
    parser.add_argument("--page", type=Path, help="also write the table of results to this page")
    arguments = parse(parser, names=["iris"])
    lines = [
        f"| table | rows | columns | {' | '.join(COMMANDS)} | options |",
        "|---|" + "---:|" * (2 + len(COMMANDS)) + "---|",
    ]
    print("\n".join(lines), flush=True)
    done, failed = 0, []
    for name, frame in tables(arguments.quick):
        if frame.select_dtypes("number").shape[1] < 2 or (
            arguments.names and not any(part in name for part in arguments.names)
        ):
            continue
        with tempfile.TemporaryDirectory() as folder:
            found = go_through(frame, Path(folder))
        lines.append(_line(name, frame.shape, found))
        print(lines[-1], flush=True)
        done += 1
        last = list(found.values())[-1]
        if len(found) < len(COMMANDS) or last.code not in (0, 3):
            failed.append(
                f"{name}: {last.said.strip().splitlines()[-1] if last.said.strip() else last.code}"
            )
            print(failed[-1], file=sys.stderr, flush=True)
    summary = f"{done - len(failed)} of {done} tables went through all five commands."
    print(summary)
    if arguments.page is not None:
        arguments.page.write_text("\n".join([_PAGE, summary, "", *lines, ""]), encoding="utf-8")
    return 1 if failed else 0


def _line(name: str, shape: tuple[int, int], found: dict[str, Outcome]) -> str:
    cells = [_shown(found.get(command)) for command in COMMANDS]
    options = ", ".join(
        f"{command} `{outcome.option}`" for command, outcome in found.items() if outcome.option
    )
    return f"| {name} | {shape[0]} | {shape[1]} | {' | '.join(cells)} | {options} |"


def _shown(outcome: Outcome | None) -> str:
    if outcome is None:
        return "–"
    return f"{outcome.seconds:.1f}" + {0: "", 3: " (not converged)", 130: " (too long)"}.get(
        outcome.code, " (refused)"
    )


def _too_long(*_: object) -> None:
    raise KeyboardInterrupt


_PAGE = """# Tables as people have them

`benchmarks/tables.py` sends every table of scikit-learn, statsmodels and vega_datasets that has \
at least two columns of numbers through the
[command line](command-line.md): as CSV, as it comes, with its text, dates and missing cells. A \
command that refuses its input says why and
which option helps; it is then called with that one option. Times are seconds of one processor, \
without the start of Python.
"""


if __name__ == "__main__":
    sys.exit(main())
