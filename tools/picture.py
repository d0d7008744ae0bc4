"""The picture that a script shows, as a file: ``python tools/picture.py examples/gallery/SCRIPT.py
docs/figures/SCRIPT.png``.
"""

from __future__ import annotations

import runpy
import sys
from unittest import mock

import matplotlib as mpl
import matplotlib.pyplot as plt
from PIL import Image

if __name__ == "__main__":
    script, output = sys.argv[1:]
    mpl.use("Agg")
    with mock.patch.object(plt, "show"):
        runpy.run_path(script, run_name="__main__")
    plt.savefig(output, dpi=90)
    Image.open(output).convert("RGB").quantize(128).save(
        output, optimize=True
    )  # a third of the size, and nobody sees it
