"""``ksos`` as a process: terminals, pipes that close, full disks, Ctrl-C; never a traceback."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import ksos as library

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals and terminals of POSIX")

LIMIT = 120


def command(*words: object) -> list[str]:
    return [sys.executable, "-m", "ksos", *map(str, words)]


@pytest.fixture
def environment() -> dict[str, str]:
    source = str(Path(library.__file__).parents[1])
    return {
        **os.environ,
        "PYTHONPATH": source,
        "TERM": "xterm",
        "OMP_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "",
    }


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    import pty

    controller, device = pty.openpty()
    yield controller, device
    for descriptor in (controller, device):
        with contextlib.suppress(OSError):
            os.close(descriptor)


def read_all(controller: int) -> str:
    """What was written to a terminal whose other end is closed."""
    shown = b""
    while True:
        try:
            chunk = os.read(controller, 65536)
        except OSError:  # Linux's way to say that it is over
            return shown.decode()
        if not chunk:
            return shown.decode()
        shown += chunk


def test_progress_on_a_terminal(
    environment: dict[str, str], plain: Path, tmp_path: Path, terminal: tuple[int, int]
) -> None:
    controller, device = terminal
    words = command("fit", plain, "-o", tmp_path / "m.ksos", "--method", "mmd", "--tol", "1e-4")
    watched = subprocess.run(
        words, env=environment, stdout=subprocess.PIPE, stderr=device, text=True, timeout=LIMIT
    )
    os.close(device)
    shown = read_all(controller)
    assert watched.returncode == 0 and watched.stdout.count("\n") == 5
    assert "\r\x1b[Kiteration " in shown and "gap " in shown
    assert shown.endswith("\r\x1b[K"), "the line is taken away at the end"
    assert "\n" not in shown


def test_a_reader_that_goes_away(environment: dict[str, str], model: Path) -> None:
    words = command("sample", model, "-n", "4000", "--seed", "1")  # more than a pipe holds
    with subprocess.Popen(
        words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == b"x1,x2\n"
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(LIMIT) == 0


def test_a_reader_that_is_never_there(environment: dict[str, str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        command("--help"),
        env=environment,
        stdout=writer,
        stderr=subprocess.PIPE,
        timeout=LIMIT,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_not_converged_is_told_to_who_does_not_read(
    environment: dict[str, str], plain: Path, tmp_path: Path
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    words = command(
        "fit",
        plain,
        "-o",
        tmp_path / "m.ksos",
        "--method",
        "mmd",
        "--solver",
        "fista",
        "--max-iter",
        "2",
    )
    done = subprocess.run(
        words, env=environment, stdout=writer, stderr=subprocess.PIPE, text=True, timeout=LIMIT
    )
    os.close(writer)
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    library.load(tmp_path / "m.ksos")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_behind_stdout(environment: dict[str, str], model: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("inspect", model),
            env=environment,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT,
        )
    assert done.returncode == 1
    assert (
        done.stderr
        == "ksos inspect: error: cannot write to the standard output: No space left on device\n"
    )


@pytest.mark.skipif(os.name != "posix", reason="needs a shell that closes a stream")
def test_a_closed_stdout_is_an_error(environment: dict[str, str]) -> None:
    line = command("--version")
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *map(str, line)],
        env=environment,
        stderr=subprocess.PIPE,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 1
    assert (
        done.stderr.endswith("error: cannot write to the standard output: it is closed\n")
        and done.stderr.count("\n") == 1
    )


def test_a_full_disk_behind_the_samples(
    environment: dict[str, str], model: Path, tmp_path: Path
) -> None:
    import resource

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))

    words, target = (
        command("sample", model, "-n", "100", "-o", tmp_path / "s.csv"),
        tmp_path / "s.csv",
    )
    target.write_text("old")
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=LIMIT, preexec_fn=limited
    )
    assert (done.returncode, done.stderr) == (1, f"ksos sample: error: {target}: File too large\n")
    assert target.read_text() == "old" and list(tmp_path.iterdir()) == [target]


def test_closed_streams(environment: dict[str, str], model: Path) -> None:
    script = f'exec "{sys.executable}" -m ksos inspect "{model}" <&- >&- 2>&-'
    assert subprocess.run(["sh", "-c", script], env=environment, timeout=LIMIT).returncode == 1, (
        "nobody can read the answer"
    )


def test_a_closed_stdin_is_an_error(environment: dict[str, str], model: Path) -> None:
    script = f'exec "{sys.executable}" -m ksos score "{model}" - <&-'
    done = subprocess.run(
        ["sh", "-c", script], env=environment, capture_output=True, text=True, timeout=LIMIT
    )
    assert done.returncode == 1 and done.stderr.count("\n") == 1


def test_interrupted_while_reading(environment: dict[str, str], tmp_path: Path) -> None:
    process = subprocess.Popen(
        command("fit", "-", "-o", tmp_path / "m.ksos"),
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    process.stdin.write(
        "0.5,0.5\n" * 100_000
    )  # more than a pipe holds: once written, it is being read
    process.stdin.flush()
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LIMIT)
    assert (process.returncode, out, err) == (130, "", "ksos fit: error: interrupted\n")
    assert list(tmp_path.iterdir()) == []


STOPPED = {
    "iteration": (
        "--method mmd --solver projected_gradient --tol 1e-30 --max-iter 1000000000",
        "ksos fit: [",
    ),
    "bandwidth": (
        f"--bandwidths {','.join(str(0.5 + 0.01 * k) for k in range(500))}"
        " --relative-regularizations 0.1",
        "ksos fit: [cv] ",
    ),
}
"""By the word at which Ctrl-C comes: the options, and how lines before it begin."""


@pytest.mark.parametrize("stage", STOPPED)
def test_interrupted_in_the_solver_and_in_the_search(
    environment: dict[str, str], plain: Path, tmp_path: Path, stage: str
) -> None:
    options, begins = STOPPED[stage]
    process = subprocess.Popen(
        command("fit", plain, "-o", tmp_path / "m.ksos", *options.split(), "--verbose"),
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(LIMIT, process.kill)
    watchdog.start()
    assert process.stderr is not None
    while stage not in (line := process.stderr.readline()):
        assert line.startswith(begins)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate()
    watchdog.cancel()
    assert (process.returncode, out) == (130, "")
    assert err.splitlines()[-2:] == [
        f"ksos fit: {tmp_path / 'm.ksos'} holds the best density found",
        "ksos fit: error: interrupted",
    ]
    assert "Traceback" not in err
    assert library.load(tmp_path / "m.ksos").terms.mass() == pytest.approx(1.0)


def test_an_error_is_one_line_without_traceback(
    environment: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "d.csv").write_bytes(b"PK\x03\x04")
    done = subprocess.run(
        command("fit", tmp_path / "d.csv", "-o", tmp_path / "m.ksos"),
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert done.returncode == 1 and done.stdout == ""
    what = "the file is an archive (a spreadsheet or NPZ); export its table as CSV or NPY"
    assert done.stderr == f"ksos fit: error: {tmp_path / 'd.csv'}, row 1, column 1: {what}\n"
