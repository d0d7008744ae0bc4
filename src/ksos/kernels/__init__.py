"""What k is. To add a kernel: one subclass of :class:`Kernel`, and its line in :data:`KERNELS`."""

from __future__ import annotations

from ksos.kernels.base import Kernel
from ksos.kernels.gaussian import Gaussian
from ksos.kernels.laplace import Laplace
from ksos.kernels.matern import Matern

__all__ = ["KERNELS", "Gaussian", "Kernel", "Laplace", "Matern"]

KERNELS: dict[str, type[Kernel]] = {kernel.name: kernel for kernel in (Gaussian, Laplace, Matern)}
"""Every kernel by the name that the estimator, the command line and the model file use."""
