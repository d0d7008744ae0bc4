"""The figure that a script or the first code block of a page shows, as a file:

python tools/picture.py examples/gallery/SCRIPT.py docs/figures/SCRIPT.png
python tools/picture.py README.md docs/figures/wine.png
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from unittest import mock

import matplotlib as mpl
import matplotlib.pyplot as plt
from PIL import Image

if __name__ == "__main__":
    script, output = sys.argv[1:]
    mpl.use("Agg")
    code = Path(script).read_text(encoding="utf-8")
    if script.endswith(".md"):
        code = re.findall(r"^```python\n(.*?)^```", code, re.MULTILINE | re.DOTALL)[0]
    with mock.patch.object(plt, "show"):
        exec(compile(code, script, "exec"), {"__name__": "__main__"})
    plt.savefig(output, dpi=110)
    # a third of the size, without a visible difference
    Image.open(output).convert("RGB").quantize(128).save(output, optimize=True)
