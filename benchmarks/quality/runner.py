"""Many pieces of work over several processes, for as long as the clock allows, each result written
the moment it is there.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from quality.contestants import CONTESTANTS
from quality.datasets import DATASETS
from quality.records import Key, Record, append, key_of, mend, read_all
from quality.work import measure

__all__ = ["describe", "expected_seconds", "guess_seconds", "plan", "run"]

_OVERHEAD = 1.0


def plan(
    cells: Callable[[str, int], bool], seeds: Iterable[int], contestants: Sequence[str]
) -> list[Key]:
    """What is to be measured."""
    return [
        Key(data.name, n, seed, name)
        for data in DATASETS.values()
        for n in data.sizes
        if cells(data.name, n)
        for seed in seeds
        for name in contestants
        if data.box is not None or not CONTESTANTS[name].walls
    ]


def guess_seconds(key: Key) -> float:
    """By size and features."""
    return (
        CONTESTANTS[key.contestant].seconds
        * (key.n or 1000)
        / 1600.0
        * (1.0 + DATASETS[key.dataset].d)
        / 11.0
    )


def expected_seconds(
    keys: Iterable[Key], measured: Iterable[Record], guess: Callable[[Key], float] = guess_seconds
) -> dict[Key, float]:
    """What a piece will take, scoring included: as long as the longest of its other seeds took, or
    else a guess.
    """
    known: dict[tuple[str, int, str], float] = {}
    for record in measured:
        key = key_of(record)
        known[key.dataset, key.n, key.contestant] = max(
            record.get("seconds", 0.0), known.get((key.dataset, key.n, key.contestant), 0.0)
        )

    return {
        key: _OVERHEAD + known.get((key.dataset, key.n, key.contestant), guess(key)) for key in keys
    }


def describe(key: Key, record: Record) -> str:
    where = f"{key.dataset} n={record['n_train']} seed={key.seed} {key.contestant}"
    if "error" in record:
        return f"{where}: {record['error']}"
    return f"{where}: {record['log_likelihood']:.4f} nats, {record['seconds']:.2f} s"


def run(
    keys: Sequence[Key],
    output: Path,
    jobs: int,
    minutes: float,
    report: Callable[[str], None],
    also: Sequence[Path] = (),
    *,
    work: Callable[[Key], Record] = measure,
    guess: Callable[[Key], float] = guess_seconds,
    line: Callable[[Key, Record], str] = describe,
) -> int:
    """Measure what ``output`` (and the files ``also``) do not hold yet, the longest first; returns
    how many pieces are still missing.

    Towards the end only pieces begin that are expected to end in time. Those still running when the
    time is over are stopped, and measured again next time.
    """
    mend(output)
    measured = [record for record in read_all([output, *also]) if "error" not in record]
    done = {key_of(record) for record in measured}
    seconds = expected_seconds((key for key in keys if key not in done), measured, guess)
    waiting = sorted(seconds, key=lambda key: -seconds[key])
    total, whole = len(waiting), 60.0 * minutes
    report(
        f"{total} of {len(keys)} pieces to measure, {jobs} at a time, for at most {minutes:g}"
        " minutes"
    )
    report(f"about {sum(seconds.values()) / 60.0:.0f} minutes of one processor")
    end = time.monotonic() + whole
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    running: dict[Future[Record], Key] = {}
    try:
        while waiting or running:
            while (
                len(running) < jobs
                and (key := _next(waiting, seconds, end - time.monotonic(), whole)) is not None
            ):
                waiting.remove(key)
                running[pool.submit(work, key)] = key
            if not running:
                break
            complete, _ = wait(
                running, timeout=max(0.0, end - time.monotonic()), return_when=FIRST_COMPLETED
            )
            for future in complete:
                key, record = running.pop(future), future.result()
                append(output, record)
                report(f"{total - len(waiting) - len(running)}/{total} {line(key, record)}")
            if time.monotonic() >= end:
                break
    finally:
        _stop(pool)
    return len(waiting) + len(running)


def _next(
    waiting: Sequence[Key], seconds: dict[Key, float], left: float, whole: float
) -> Key | None:
    """The longest piece that ends in time; in the first tenth of a run any, so that one longer than
    expected is not put off for ever.
    """
    return next(
        (key for key in waiting if left > 0.0 and (seconds[key] <= left or left > 0.9 * whole)),
        None,
    )


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the pool's own processes, finished or not."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()
