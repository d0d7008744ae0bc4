"""The lowest version of every dependency that pyproject.toml allows, one constraint a line: what
``make test-lowest`` installs.

Names that constraints.txt pins are left out: it says why.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENT = re.compile(r"(?P<name>[\w.-]+)(?:\[[^\]]*\])?>=(?P<version>[\w.]+)")


def floors() -> dict[str, str]:
    """Name to lowest version, of the dependencies of the package, its extras and its tests."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = re.findall(
        r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE
    )
    found: dict[str, str] = {}
    for requirement in (
        line
        for lines in (project["dependencies"], *project["optional-dependencies"].values())
        for line in lines
    ):
        if requirement.startswith(f"{project['name']}["):  # an extra made of others
            continue
        match = REQUIREMENT.fullmatch(requirement)
        if match is None:
            raise SystemExit(
                f"pyproject.toml asks for {requirement!r}, which has no lowest version: write"
                " name>=version"
            )
        name, version = match["name"], match["version"]
        if found.setdefault(name, version) != version:
            raise SystemExit(
                f"pyproject.toml gives {name} two lowest versions: {found[name]} and {version}"
            )
    return {name: version for name, version in found.items() if name not in pinned}


if __name__ == "__main__":
    for name, version in sorted(floors().items()):
        print(f"{name}=={version}")
