"""Draw independent samples from a saved density, or from a marginal or conditional of it, as CSV or
NPY.
"""

from __future__ import annotations

import argparse
import csv
import io
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from ksos.cli import values
from ksos.cli.console import Console, require_writable
from ksos.cli.view import add_view_options, take_view
from ksos.density.io import load
from ksos.ground.files import replace_whole
from ksos.ground.validation import as_count

__all__ = ["add_arguments", "csv_lines", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what ``ksos sample`` understands."""
    add = parser.add_argument
    add("model", metavar="MODEL", help="a file written by ksos fit")
    add(
        "-n",
        "--n-samples",
        type=values.count,
        default=1000,
        metavar="N",
        help="how many (default: %(default)s)",
    )
    add(
        "--seed",
        type=values.seed,
        metavar="SEED",
        help="of the samples (default: a new one each time)",
    )
    add(
        "-o",
        "--output",
        metavar="FILE",
        help="a file ending in .npy gets NPY, any other CSV (default: CSV on the standard output)",
    )
    add(
        "--json",
        action="store_true",
        help="one JSON object on the standard output, with the samples if no file has them",
    )
    add_view_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Carry out ``ksos sample``."""
    n, output = as_count(arguments.n_samples, "--n-samples"), arguments.output
    require_writable(output)
    view = take_view(load(arguments.model), arguments)
    console.status(f"drawing {n} samples ...")
    samples = view.density.rvs(n, rng=arguments.seed)
    if output is not None:
        lines = (f"{line}\n".encode() for line in csv_lines(samples, view.names))
        replace_whole(output, _npy_parts(samples) if output.lower().endswith(".npy") else lines)
    value = {
        "n_samples": n,
        "n_features": len(view.features),
        **view.described(),
        "seed": arguments.seed,
        "output": output,
    }
    if output is None and arguments.json:
        value["samples"] = samples.tolist()
    return console.answer(
        arguments.json, value, csv_lines(samples, view.names) if output is None else []
    )


def _npy_parts(samples: np.ndarray) -> Iterable[bytes | memoryview]:
    """The header and the numbers, not copied, of an NPY file."""
    samples, header = np.ascontiguousarray(samples), io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(samples))
    return header.getvalue(), samples.data


def csv_lines(samples: np.ndarray, names: Sequence[str]) -> Iterator[str]:
    """A header with the names and the rows, each number with the digits that give it back exactly."""
    header = io.StringIO()
    csv.writer(header, lineterminator="").writerow(names)  # a name may contain a comma
    yield header.getvalue()
    for row in samples:
        yield ",".join(map(repr, row.tolist()))
