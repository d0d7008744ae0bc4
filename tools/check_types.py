"""``make types``: mypy and pyright, with the settings of a user who has none, accept the code of
README.md and of examples/.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "types"


def collect() -> list[str]:
    """Copy the code to a folder outside of the project's settings; the blocks of the README are one
    program.
    """
    shutil.rmtree(FOLDER, ignore_errors=True)
    shutil.copytree(
        ROOT / "examples",
        FOLDER / "examples",
        ignore=shutil.ignore_patterns("*.rst", "__pycache__"),
    )
    blocks = re.findall(
        r"^```python\n(.*?)^```",
        (ROOT / "README.md").read_text(encoding="utf-8"),
        re.MULTILINE | re.DOTALL,
    )
    (FOLDER / "readme.py").write_text("\n".join(blocks), encoding="utf-8")
    # scikit-learn has no types: it is not complained about, and its types are not guessed from its
    # code
    (FOLDER / "pyrightconfig.json").write_text(
        '{"typeCheckingMode": "basic", "useLibraryCodeForTypes": false}'
    )
    (FOLDER / "mypy.ini").write_text("[mypy]\nignore_missing_imports = True\n")
    return sorted(str(file.relative_to(FOLDER)) for file in FOLDER.rglob("*.py"))


if __name__ == "__main__":
    files = collect()
    codes = [
        subprocess.run([sys.executable, "-m", *checker, *files], cwd=FOLDER, check=False).returncode
        for checker in (
            ["mypy", "--config-file", "mypy.ini"],
            ["pyright", "--pythonpath", sys.executable],
        )
    ]
    sys.exit(max(codes))
