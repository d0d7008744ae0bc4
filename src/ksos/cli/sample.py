"""Draw independent samples from a saved density, or from a marginal or conditional
of it, as CSV or NPY.

examples:
  ksos sample cars.ksos -n 1000 --seed 0 -o samples.csv
  ksos sample cars.ksos -n 5 --given hp=100
  ksos sample cars.ksos -n 100000 --features mpg -o mpg.npy
"""

import argparse
import csv
import io
from collections.abc import Iterator, Sequence

import numpy as np

from ksos.cli import values
from ksos.cli.console import Console, require_writable
from ksos.cli.options import MODEL, VIEW, take_view
from ksos.density import load
from ksos.ground.files import replace_whole
from ksos.ground.validation import as_count

ARGUMENTS = [
    MODEL,
    values.argument(
        "-n",
        "--n-samples",
        type=values.count,
        default=1000,  # for a histogram and means, and still a moment
        metavar="N",
        help="how many (default: %(default)s)",
    ),
    values.argument(
        "--seed",
        type=values.seed,
        metavar="SEED",
        help="of the samples (default: a new one each time)",
    ),
    values.argument(
        "-o",
        "--output",
        metavar="FILE",
        help="a file ending in .npy gets NPY, any other CSV (default: CSV on the standard output)",
    ),
    *VIEW,
]


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos sample``."""
    n, output = as_count(arguments.n_samples, "--n-samples"), arguments.output
    require_writable(output)
    view = take_view(load(arguments.model), arguments)
    console.status(f"drawing {n} samples ...")
    samples = view.density.rvs(n, rng=arguments.seed)
    value = {
        "n_samples": n,
        "n_features": len(view.features),
        **view.described(),
        "seed": arguments.seed,
        "output": output,
    }
    if output is None:
        more = {"samples": samples.tolist()} if arguments.json else {}
        return console.answer(arguments.json, value | more, csv_lines(samples, view.names))
    if output.lower().endswith(".npy"):
        header, samples = io.BytesIO(), np.ascontiguousarray(samples)
        layout = np.lib.format.header_data_from_array_1_0(samples)
        np.lib.format.write_array_header_1_0(header, layout)
        replace_whole(output, (header.getvalue(), samples.data))
    else:
        replace_whole(output, (f"{line}\n".encode() for line in csv_lines(samples, view.names)))
    return console.answer(arguments.json, value, [f"written: {output} ({n:,} samples)"])


def csv_lines(samples: np.ndarray, names: Sequence[str]) -> Iterator[str]:
    """A header with the names and the rows, each number with the digits that give it back exactly."""
    header = io.StringIO()
    csv.writer(header, lineterminator="").writerow(names)  # a name may contain a comma
    yield header.getvalue()
    for row in samples:
        yield ",".join(map(repr, row.tolist()))
