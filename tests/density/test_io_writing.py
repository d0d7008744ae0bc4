"""Saving: at every moment the old file or the new one, whole, whatever stops it."""

from __future__ import annotations

import errno
import io as streams
import json
import os
import stat
import subprocess
import sys
from copy import copy
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import pytest
from densities import random_density

import ksos.density
from ksos.density import load, save, square_of
from ksos.kernels import Gaussian, Laplace

SOURCE = Path(ksos.density.__file__).parents[2]


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A folder that holds nothing but one model."""
    folder = tmp_path / "models"
    folder.mkdir()
    save(random_density(Gaussian(1.0)), folder / "model.ksos")
    return folder / "model.ksos"


def assert_untouched(old: Path) -> None:
    assert np.array_equal(
        square_of(load(old)).unit_factor, square_of(random_density(Gaussian(1.0))).unit_factor
    )
    assert [file.name for file in old.parent.iterdir()] == [old.name]


@pytest.mark.parametrize(
    "failure",
    [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt(), MemoryError()],
    ids=repr,
)
@pytest.mark.parametrize("step", ["write", "fsync", "replace", "chmod"])
def test_failure_leaves_the_old_file_and_nothing_else(
    step: str, failure: BaseException, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failure = copy(failure)  # it gets the name of this file

    def fail(*_: Any) -> None:
        raise failure

    class Full(streams.BufferedWriter):
        """A disk with room for two of the parts."""

        def write(self, part: Any) -> int:
            if self.tell() > 48:
                fail()
            return super().write(part)

    def open_full(descriptor: int, mode: str) -> Full:
        return Full(streams.FileIO(descriptor, mode))

    with monkeypatch.context() as patch:
        patch.setattr(os, *(("fdopen", open_full) if step == "write" else (step, fail)))
        with pytest.raises(type(failure)) as caught:
            save(random_density(Laplace(1.0)), old)
    assert caught.value is failure
    if isinstance(failure, OSError):
        assert failure.errno == errno.ENOSPC
        assert failure.filename == str(old)
    assert_untouched(old)


def test_data_reach_the_disk_before_the_name_does(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    fsync, replace = os.fsync, os.replace

    def spy_fsync(descriptor: int) -> None:
        state = os.fstat(descriptor)
        calls.append(
            "sync folder" if stat.S_ISDIR(state.st_mode) else f"sync {state.st_size} bytes"
        )
        fsync(descriptor)

    def spy_replace(source: Path, target: Path) -> None:
        assert source.parent == target.parent
        calls.append("replace")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", spy_fsync)
    monkeypatch.setattr(os, "replace", spy_replace)
    save(random_density(Laplace(1.0)), old)
    assert calls == [f"sync {old.stat().st_size} bytes", "replace", "sync folder"]


@pytest.mark.parametrize("number", [errno.EINVAL, errno.EIO])
def test_folders_that_cannot_be_synchronised(
    number: int, old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def no_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(number, os.strerror(number))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", no_folders)
    save(random_density(Laplace(1.0)), old)
    assert isinstance(load(old).kernel, Laplace)


SCRIPT = """
import json, os, random, resource, signal, sys, time
from copy import copy
from pathlib import Path
import numpy as np
from ksos.ground import files as _files
from ksos.density import SoSDensity, io
from ksos.kernels import Gaussian

target = Path(sys.argv[1])
rng = np.random.default_rng(0)

def model(sigma):
    X, F = rng.normal(size=(16, 1)), rng.normal(size=(16, 8192))
    return SoSDensity(Gaussian(sigma), X, F, normalize=True)

models = [model(1.0), model(2.0)]
io.save(models[1], target)
whole_new = target.read_bytes()
io.save(models[0], target)
whole_old = target.read_bytes()

def seen():
    content = target.read_bytes()
    return "old" if content == whole_old else "new" if content == whole_new else "broken"

def child(work):
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(99)
    return pid

def at_line(n):  # kill at the n-th line of the writing part
    lines = 0
    def trace(frame, event, argument):
        nonlocal lines
        if frame.f_code.co_filename != _files.__file__:
            return trace
        if event == "line":
            if lines == n:
                os.kill(os.getpid(), signal.SIGKILL)
            lines += 1
        return trace
    sys.settrace(trace)
    io.save(models[1], target)

steps = []
while True:
    io.save(models[0], target)
    pid = child(lambda: at_line(len(steps)))
    status = os.waitpid(pid, 0)[1]
    steps.append(seen())
    if not os.WIFSIGNALED(status):
        break

def forever(started):
    while True:
        for p in models:
            io.save(p, target)
            os.write(started, b"!")

moments, pause = [], random.Random(0)
for _ in range(30):
    reading, writing = os.pipe()
    pid = child(lambda: forever(writing))
    os.read(reading, 1)
    time.sleep(pause.uniform(0.0, 0.06))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(reading)
    os.close(writing)
    moments.append(seen())
leftovers = [file for file in target.parent.iterdir() if file != target]
names = all(file.name.startswith(".ksos-") and file.name.endswith(".tmp") for file in leftovers)
for file in leftovers:
    file.unlink()

def limited():
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole_new) // 2, resource.RLIM_INFINITY))
    try:
        io.save(models[1], target)
    except OSError as error:
        os._exit(error.errno)

io.save(models[0], target)
code = os.waitstatus_to_exitcode(os.waitpid(child(limited), 0)[1])
full = code, seen(), len(list(target.parent.iterdir()))
print(json.dumps({"steps": steps, "moments": moments, "names": names, "full": full}))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills forked processes")
def test_kill_and_full_disk_in_real_processes(old: Path) -> None:
    environment = os.environ | {
        "PYTHONPATH": str(SOURCE),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(old)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    switch = seen["steps"].index("new")
    assert switch >= 10, "every line before the rename must have been killed once"
    assert seen["steps"] == ["old"] * switch + ["new"] * (len(seen["steps"]) - switch)
    assert set(seen["moments"]) <= {"old", "new"}
    assert seen["names"]
    assert seen["full"] == [errno.EFBIG, "old", 1]


# --- paths and permissions ---


@pytest.mark.parametrize(
    "kind", [str, Path, os.fsencode, PurePosixPath], ids=["str", "Path", "bytes", "PurePath"]
)
def test_every_kind_of_path(kind: Any, old: Path) -> None:
    path = kind(old)
    save(random_density(Laplace(1.0)), path)
    assert isinstance(load(path).kernel, Laplace)
    for other in (3, None):
        with pytest.raises(TypeError):
            load(other)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            save(random_density(Laplace(1.0)), other)  # type: ignore[arg-type]


def test_paths_relative_to_the_folder(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(old.parent)
    save(random_density(Laplace(1.0)), "x" * 255)
    assert isinstance(load("x" * 255).kernel, Laplace)


def test_errors_name_the_file_and_nothing_else(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = old.parent / "nowhere" / "model.ksos"
    with pytest.raises(FileNotFoundError) as caught:
        save(random_density(Gaussian(1.0)), missing)
    assert str(caught.value).endswith(f"No such file or directory: {str(missing)!r}")

    def refuse(source: Any, target: Any) -> None:
        raise PermissionError(
            errno.EACCES, os.strerror(errno.EACCES), str(source), None, str(target)
        )

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError) as denied:
        save(random_density(Gaussian(1.0)), old)
    assert str(denied.value).endswith(f"Permission denied: {str(old)!r}")


def test_permissions(old: Path) -> None:
    previous = os.umask(0o027)
    try:
        new = old.with_name("new.ksos")
        save(random_density(Laplace(1.0)), new)
        assert stat.S_IMODE(new.stat().st_mode) == 0o640
        for mode in (0o600, 0o666, 0o755):
            old.chmod(mode)
            save(random_density(Laplace(1.0)), old)
            assert stat.S_IMODE(old.stat().st_mode) == mode
    finally:
        os.umask(previous)


def test_links_stay(old: Path) -> None:
    link = old.with_name("link.ksos")
    link.symlink_to(old.name)
    save(random_density(Laplace(1.0)), link)
    assert link.is_symlink()
    assert isinstance(load(old).kernel, Laplace)


def test_what_is_no_file_stays_what_it_is(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    p, pipe, missing = (
        random_density(Laplace(1.0)),
        old.with_name("pipe"),
        old.parent / "missing" / "model.ksos",
    )
    for action in (load, lambda path: save(p, path)):
        for path, kind in (
            (missing, FileNotFoundError),
            (old.parent, IsADirectoryError),
            (old / "below", NotADirectoryError),
        ):
            with pytest.raises(kind) as caught:
                action(path)
            assert caught.value.filename == str(path)
    os.mkfifo(pipe)
    with pytest.raises(OSError, match="Not a regular file"):
        save(p, pipe)
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    pipe.unlink()
    monkeypatch.setattr(
        os, "access", lambda *_: False
    )  # whoever runs the tests may be allowed everything
    with pytest.raises(PermissionError):
        save(p, old)
    assert_untouched(old)
