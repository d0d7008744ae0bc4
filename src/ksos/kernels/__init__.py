"""What k is. To add a kernel: one subclass of :class:`Kernel`, and its line in :data:`KERNELS`.

>>> KERNELS["gaussian"](0.5)
Gaussian(sigma=0.5)
"""

from __future__ import annotations

from typing import Any

from ksos.ground import as_choice
from ksos.kernels.base import (
    Kernel,
    KernelSums as KernelSums,
    squared_distances as squared_distances,
)
from ksos.kernels.gaussian import Gaussian, Products as Products
from ksos.kernels.matern import Laplace, Matern
from ksos.kernels.roots import (
    ROUTES as ROUTES,
    choose_pivots as choose_pivots,
    definite_root as definite_root,
    thin_root as thin_root,
    untruncated as untruncated,
    whiten as whiten,
)

__all__ = [
    "KERNELS",
    "Gaussian",
    "Kernel",
    "Laplace",
    "Matern",
    "kernel_form",
]

KERNELS: dict[str, type[Kernel]] = {kernel.name: kernel for kernel in (Gaussian, Laplace, Matern)}
"""Every kernel by the name that the estimator, the command line and the model file use."""


def kernel_form(kernel: Any) -> Kernel:
    """The kernel of that name, in the product form, which has closed-form integrals.

    >>> kernel_form("laplace").product
    True
    """
    if isinstance(kernel, Kernel):
        return kernel
    name = as_choice(kernel, "kernel", KERNELS, otherwise=" or a kernel object")
    return KERNELS[name](sigma=1.0, **({} if name == "gaussian" else {"product": True}))
