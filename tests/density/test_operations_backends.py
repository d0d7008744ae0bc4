"""Operations on densities made of torch tensors give densities made of torch tensors, with the same
values.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tables import points

import ksos
from ksos.kernels import Gaussian
from ksos.measures import Box, Discrete, Measure, Normal

torch = pytest.importorskip("torch")

Y = np.clip(points(5, 2, 3), -1.0, 1.0)
BOX = Box([-1.0, -1.0], [1.0, 1.0])
OPERATIONS: dict[str, Callable[[ksos.SoSDensity], Any]] = {
    "marginal": lambda p: p.marginal([1]).pdf(Y[:, 1:]),
    "conditional": lambda p: p.conditional({1: 0.2}).pdf(Y[:, :1]),
    "conditional_logpdf": lambda p: p.conditional_logpdf(Y, given=[0]),
    "times_gaussian": lambda p: p.times_gaussian(0.1, [0.5, np.inf]).pdf(Y),
    "affine": lambda p: p.affine(2.0, 0.5).pdf(Y),
    "compress": lambda p: p.compress(rank=1).density.pdf(Y),
    "mixture": lambda p: ksos.mixture([p, p.affine(1.0)]).pdf(Y),
}


@pytest.mark.parametrize(
    "measure", [None, BOX, Normal(0.0, 1.0), Discrete.quadrature(BOX, 4)], ids=repr
)
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
def test_torch_densities_stay_torch_densities(
    operation: Callable[[ksos.SoSDensity], Any], measure: Measure | None
) -> None:
    p = ksos.SoSDensity(Gaussian(0.8), points(6, 2), points(6, 2, 1), measure, normalize=True)
    ours, theirs = operation(p), operation(p.to("cpu"))
    assert isinstance(ours, np.ndarray) and isinstance(theirs, torch.Tensor)
    np.testing.assert_allclose(theirs.numpy(), ours, rtol=1e-10)


def test_rows_of_another_backend() -> None:
    p = ksos.SoSDensity(Gaussian(0.8), points(6, 2), points(6, 2, 1), normalize=True)
    np.testing.assert_array_equal(
        p.conditional_logpdf(torch.asarray(Y), given=[0]), p.conditional_logpdf(Y, given=[0])
    )
