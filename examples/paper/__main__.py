"""Draw the figures of the paper as PNG and PDF, with their numbers as CSV.

From the root of the source tree: ``python -m examples.paper --quick --output demo``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.paper import FIGURES, run


def main(words: Sequence[str] | None = None) -> int:
    """Print the certificate of every fit as it ends, and then the files."""
    parser = argparse.ArgumentParser(prog="python -m examples.paper", description=__doc__)
    parser.add_argument(
        "--figure",
        action="append",
        choices=list(FIGURES),
        metavar="NAME",
        help=f"{', '.join(FIGURES)}; may be repeated (default: all)",
    )
    parser.add_argument(
        "--output",
        default="figures",
        type=Path,
        metavar="DIR",
        help="the folder for the files, created if needed (default: %(default)s)",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="smaller problems: a preview in seconds instead of the paper's sizes",
    )
    arguments = parser.parse_args(words)
    if arguments.output.is_file():
        parser.error(f"{arguments.output} is a file; --output expects a folder")
    print(*run(arguments.figure, arguments.output, arguments.quick, print), sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
