"""``make check-package``: what an index would get is whole, and works in an empty environment. The
archives lie in dist/.

Files, README, installation without extras, import, command line, a certified fit, and the page of
the explorer are checked.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import venv
import zipfile
from email.parser import BytesParser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"

# The first certified density, in a fresh process; then what must be there, and what must not.
LONGEST, LONGEST_IMPORT = 10.0, 0.3
"""Seconds to the first density, and those that ``import ksos`` adds to ``import sklearn``."""
FIRST_DENSITY = """
import ksos, numpy as np
est = ksos.KernelSoSDensity().fit(np.random.default_rng(0).normal(size=(200, 2)))
print(est.solution_.message)
"""
INSTALLED = """
import importlib.resources, importlib.util, ksos, sys
assert est.solution_.status == "solved"
assert abs(est.distribution_.probability(-np.inf, np.inf) - 1.0) < 1e-9
assert "site-packages" in ksos.__file__, ksos.__file__
absent = "tests", "docs", "matplotlib", "torch", "cvxpy", "dask", "pyarrow"
assert not [name for name in absent if importlib.util.find_spec(name)]
page = importlib.resources.files("ksos.explorer") / "static"
assert all((page / name).is_file() for name in sys.argv[1:]), "files of the explorer are missing"
"""


def one(pattern: str) -> Path:
    """The one archive of a kind."""
    found = list(DIST.glob(pattern))
    if len(found) != 1:
        sys.exit(
            f"dist/ holds {len(found)} files like {pattern}, but one was expected: make clean build"
        )
    return found[0]


def check_files(wheel: Path, source: Path) -> None:
    """The wheel holds the package as it is in src/, and nothing else; the source archive holds what
    tests and site need.
    """
    packed = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    here = {
        f.relative_to(ROOT / "src").as_posix()
        for f in (ROOT / "src/ksos").rglob("*")
        if f.is_file() and "__pycache__" not in f.parts
    }
    assert packed == here, f"wheel and src/ differ: {sorted(packed ^ here)}"
    assert "ksos/py.typed" in packed
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = [
        "README.md",
        "LICENSE",
        "CHANGELOG.md",
        "CITATION.cff",
        "pyproject.toml",
        "hatch_build.py",
        "Makefile",
        "constraints.txt",
    ]
    wanted += [
        "docs/index.md",
        "docs/conf.py",
        "tests/conftest.py",
        "examples/how_to/anomalies.py",
        "src/ksos/__init__.py",
    ]
    missing = [name for name in wanted if name not in names]
    assert not missing, f"not in the source archive: {missing}"


def check_metadata(wheel: Path) -> None:
    """The README of the index has no link, picture or formula that only a checkout can show; the
    extras are those of pyproject.toml.
    """
    with zipfile.ZipFile(wheel) as archive:
        metadata = BytesParser().parsebytes(
            archive.read(next(n for n in archive.namelist() if n.endswith("/METADATA")))
        )
    readme = metadata.get_payload(decode=True).decode()
    assert "pip install kernel-sos" in readme
    broken = re.findall(r"\]\((?!https?:)[^)]*\)|\$\$|(?:src|href)=", readme)
    assert not broken, f"the index cannot show {broken}"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert metadata["Name"] == project["name"] == "kernel-sos"
    assert set(metadata.get_all("Provides-Extra")) == set(project["optional-dependencies"])


def check_installed(archive: Path) -> None:
    """Install an archive in an empty environment, and use it in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        environment, work = Path(folder) / "env", Path(folder) / "work"
        work.mkdir()
        venv.create(environment, with_pip=True)
        python = environment / ("Scripts" if sys.platform == "win32" else "bin") / "python"

        def run(*command: str | Path) -> str:
            done = subprocess.run(
                [python, *command], cwd=work, capture_output=True, text=True, check=False
            )
            if done.returncode:
                sys.exit(f"{archive.name}: {command} failed\n{done.stdout}{done.stderr}")
            return done.stdout

        def seconds(code: str) -> float:
            """Of the processor, from the start of the interpreter to the end of the code: a busy
            machine must not fail the check.
            """
            return float(run("-c", f"{code}\nimport time; print(time.process_time())").split()[-1])

        run("-m", "pip", "install", "--quiet", "--disable-pip-version-check", archive)
        run("-m", "pip", "check")
        page = sorted(
            file.name for file in (ROOT / "src/ksos/explorer/static").iterdir() if file.is_file()
        )
        print(
            f"{archive.name}: {run('-W', 'error', '-c', FIRST_DENSITY + INSTALLED, *page).strip()}"
        )
        times = {
            code: min(seconds(code) for _ in range(5))
            for code in (FIRST_DENSITY, "import sklearn", "import ksos")
        }
        added = times["import ksos"] - times["import sklearn"]
        print(
            f"    first density after {times[FIRST_DENSITY]:.1f} s; the import adds {added:.2f} s"
            " to that of scikit-learn"
        )
        assert times[FIRST_DENSITY] < LONGEST and added < LONGEST_IMPORT
        assert "explore" in run("-m", "ksos", "--help")
        (work / "data.csv").write_text(
            "x,y\n" + "".join(f"{i % 7},{(i * i) % 11}\n" for i in range(60))
        )
        run("-m", "ksos", "fit", "data.csv", "-o", "data.ksos")
        assert (
            0.0 < float(run("-m", "ksos", "query", "data.ksos", "--low", "x=3").split()[-1]) < 1.0
        )


if __name__ == "__main__":
    wheel, source = one("*.whl"), one("*.tar.gz")
    check_files(wheel, source)
    check_metadata(wheel)
    for archive in (wheel, source):
        check_installed(archive)
    print("wheel and source archive are whole, and work in an empty environment")
