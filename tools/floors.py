"""The lowest version of every dependency that pyproject.toml allows, one constraint a line: what ``make test-lowest`` installs.

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
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    found: dict[str, str] = {}
    for requirement in (line for lines in (project["dependencies"], *project["optional-dependencies"].values()) for line in lines):
        match = REQUIREMENT.fullmatch(requirement)
        if match is None and not requirement.startswith(f"{project['name']}["):
            raise SystemExit(f"pyproject.toml asks for {requirement!r}, which has no lowest version: write name>=version")
        if match is not None and match["name"] not in pinned:
            if found.setdefault(match["name"], match["version"]) != match["version"]:
                raise SystemExit(f"pyproject.toml gives {match['name']} two lowest versions: {found[match['name']]} and {match['version']}")
    return found


if __name__ == "__main__":
    for name, version in sorted(floors().items()):
        print(f"{name}=={version}")
