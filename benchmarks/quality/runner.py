"""Many pieces of work over several processes, for as long as the clock allows, each result written the moment it is there."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path

from quality.contestants import CONTESTANTS
from quality.datasets import DATASETS
from quality.records import Key, Record, append, key_of, read_all
from quality.work import measure

__all__ = ["plan", "run"]


def plan(cells: Callable[[str, int], bool], seeds: Iterable[int], contestants: Sequence[str]) -> list[Key]:
    """What is to be measured: seed after seed, so that a run cut short has touched every cell; within a seed the large ones first."""
    keys = [
        Key(data.name, n, seed, name)
        for data in DATASETS.values()
        for n in data.sizes
        if cells(data.name, n)
        for seed in seeds
        for name in contestants
        if data.box is not None or not CONTESTANTS[name].walls
    ]
    cost = {key: (key.n or 600) * DATASETS[key.dataset].d * (10 if key.contestant.startswith("ksos") else 1) for key in keys}
    return sorted(keys, key=lambda key: (key.seed, -cost[key]))


def run(keys: Sequence[Key], output: Path, jobs: int, minutes: float, report: Callable[[str], None], also: Sequence[Path] = ()) -> int:
    """Measure what ``output`` (and the files ``also``) do not hold yet; returns how many pieces are still missing.

    When the time is over no new piece begins, and pieces that are still running are stopped: they are measured again next time.
    """
    done = {key_of(record) for record in read_all([output, *also]) if "error" not in record}
    waiting = [key for key in keys if key not in done]
    report(f"{len(waiting)} of {len(keys)} pieces to measure, {jobs} at a time, for at most {minutes:g} minutes")
    end, total = time.monotonic() + 60.0 * minutes, len(waiting)
    finished = 0
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    running: dict[Future[Record], Key] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs and time.monotonic() < end:
                key = waiting.pop(0)
                running[pool.submit(measure, key)] = key
            complete, _ = wait(running, timeout=max(0.0, end - time.monotonic()), return_when=FIRST_COMPLETED)
            for future in complete:
                key, record = running.pop(future), future.result()
                append(output, record)
                finished += "error" not in record
                report(f"{total - len(waiting) - len(running)}/{total} {_line(key, record)}")
            if time.monotonic() >= end:
                break
    finally:
        _stop(pool)
    return len(waiting) + len(running)


def _stop(pool: ProcessPoolExecutor) -> None:
    """End the pool's own processes, finished or not."""
    processes = list((pool._processes or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


def _line(key: Key, record: Record) -> str:
    where = f"{key.dataset} n={record['n_train']} seed={key.seed} {key.contestant}"
    if "error" in record:
        return f"{where}: {record['error']}"
    return f"{where}: {record['log_likelihood']:.4f} nats, {record['seconds']:.2f} s"
