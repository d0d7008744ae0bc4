"""One fit at a time, which a click or a newer fit ends; tabs do not see each other; Ctrl-C ends the
command.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ksos
from ksos.explorer import DRAFTS, Cancelled, Samples, Session, Settings
from tests.explore.conftest import Client, Reply, moons

SLOW = {
    "features": [0, 1],
    "n_support": 100,
    "objective": "mmd",
    "regularization": 1e-8,
    "scale": 0.7,
}


def in_background(client: Client, **asked: object) -> tuple[threading.Thread, list[Reply]]:
    found: list[Reply] = []
    thread = threading.Thread(target=lambda: found.append(client.ask("fit", **asked)))
    thread.start()
    return thread, found


def until_it_runs(client: Client) -> None:
    ends = time.monotonic() + 240.0
    while not client.ask("progress").value["n_iter"]:
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.parametrize("how", ["cancel", "newer fit"])
def test_a_long_fit_can_be_ended(how: str) -> None:
    with ksos.explore(moons(240), open_browser=False) as page:
        client = Client(page)
        before = client.ask("fit", features=[0, 1], n_support=15, draft=True).value
        kept = page.estimator_
        thread, found = in_background(client, **SLOW)
        until_it_runs(client)
        if how == "cancel":
            assert client.ask("cancel").status == 200
            thread.join(240.0)
            assert page.estimator_ is kept, "the fit before is kept"
            assert client.ask("box", low=[-9.0, -9.0], high=[9.0, 9.0]).value[
                "probability"
            ] == pytest.approx(1.0, abs=1e-6)
        else:
            after = client.ask("fit", features=[0, 1], n_support=15, draft=True).value
            thread.join(240.0)
            assert after["objective"] == before["objective"]
        assert [reply.value for reply in found] == [{"canceled": True}]


def test_the_choice_of_a_reference_can_be_canceled() -> None:
    """The time before the first certificate: the answer comes at once, and nothing that was cut
    short is kept.
    """
    asked = Settings.of(
        {"features": [0, 1], "reference": "mixture", "n_support": 10, "draft": True}, 2
    )
    samples = Samples.of(moons(150), None, None, "")
    session = Session(samples)
    tab, before = session.tab("one"), session.tab("one").stop
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(session.fit, "one", asked)
        while tab.stop is before:
            time.sleep(0.001)
        session.cancel("one")
        with pytest.raises(Cancelled):
            running.result(30.0)
    assert tab.fitted is None and tab.progress is None
    assert (
        session.fit("one", asked).solution.objective
        == Session(samples).fit("one", asked).solution.objective
    )


@pytest.mark.parametrize("objective", DRAFTS)
def test_a_draft_is_solved_to_its_own_gap_and_counts_as_the_last_fit(objective: str) -> None:
    session = Session(Samples.of(moons(), None, None, ""))
    for scale in (1.0, 1.2):
        asked = {"features": [0, 1], "n_support": 30, "objective": objective, "scale": scale}
        found = session.fit("one", Settings.of(asked | {"draft": True}, 2))
        assert found.solution.status == "solved" and found.solution.gap <= DRAFTS[objective]
        assert session.last is found and found.estimator.solution_ is found.solution


def test_a_fit_that_arrives_after_its_successor_is_left_out(page: ksos.Explorer) -> None:
    client = Client(page, "turns")
    assert (
        client.ask("fit", features=[0], n_support=10, draft=True, turn=2).value["status"]
        == "solved"
    )
    assert client.ask("fit", features=[1], n_support=10, draft=True, turn=1).value == {
        "canceled": True
    }
    assert client.ask("program").value["program"].count("[:, [0]]") == 1
    assert client.ask("fit", features=[1], n_support=10, draft=True, turn="x").status == 422


def test_tabs_do_not_see_each_other(page: ksos.Explorer) -> None:
    one, two = Client(page, "first"), Client(page, "second")
    one.ask("fit", features=[0], n_support=10, draft=True)
    two.ask("fit", features=[1], n_support=10, draft=True)
    ends = {"low": [0.0], "high": [9.0]}
    assert one.ask("box", **ends).value != two.ask("box", **ends).value
    assert page.distribution_.feature_names == ("b",), "that of the last fit"
    assert two.ask("cancel").status == 200 and one.ask("box", **ends).status == 200


def test_warnings_are_told() -> None:
    far = np.r_[moons(40), [[1e6, 1e6]]]
    with ksos.explore(far, open_browser=False) as page:
        client = Client(page)
        told = client.ask("fit", features=[0, 1], n_support=2, scale=0.125, draft=True).value
    assert told["warnings"] and all(len(text) > 20 for text in told["warnings"])


def test_the_command_serves_until_ctrl_c(tmp_path: Path) -> None:
    X = moons(60)
    np.savetxt(tmp_path / "data.csv", X, delimiter=",", header="left,right", comments="")
    environment = {**os.environ, "PYTHONPATH": str(Path(ksos.__file__).parents[1])}
    words = [
        sys.executable,
        "-m",
        "ksos",
        "explore",
        "data.csv",
        "--no-browser",
        "--columns",
        "right,left",
    ]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, **pipes) as process:
        url = process.stdout.readline().strip()
        page = type("Page", (), {"url": url})
        client = Client(page)  # type: ignore[arg-type]
        assert client.ask("data").value["names"] == ["right", "left"]
        told = client.ask("fit", features=[0, 1], n_support=15).value
        program = client.ask("program").value["program"]
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert process.returncode == 0 and err == "ksos explore: the page is served until Ctrl-C\n"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout.split()[0]) == pytest.approx(told["objective"], rel=1e-9)
    assert ksos.load(tmp_path / "model.ksos").feature_names == ("right", "left")
