"""The kernels with a kink or with few derivatives: Laplace, and Matérn (Sobolev) with half-integers
as exponential polynomials and every other order through the Bessel function.
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import kve

from ksos.ground import Array, as_positive, namespace, on_host, quiet
from ksos.kernels.base import Kernel

_FAR = 1e9  # K_{ν−1}/K_ν = 1 − O(1/r); the library function returns NaN near 1e10


class Laplace(Kernel):
    r"""k(x, y) = exp(−‖(x − y)/σ‖); with ``product=True``, ``exp(−Σ_k |x_k − y_k|/σ_k)``.

    >>> import numpy as np
    >>> x, y = np.zeros((1, 2)), np.ones((1, 2))
    >>> float(Laplace(1.0, product=True).log(x, y)[0, 0])
    -2.0
    """

    name = "laplace"

    @property
    def polynomial(self) -> np.ndarray:
        """κ = e^{−r} Σ_k c_k r^k: the same form as the half-integer Matérn kernels, with one
        coefficient.
        """
        return np.ones(1)

    def log_profile(self, t: Array) -> Array:
        return -namespace(t).sqrt(t)

    def reach(self, log_level: float) -> float:
        return -log_level

    def squared(self) -> Self:
        return self.scaled(0.5)


class Matern(Kernel):
    r"""k(x, y) = 2^{1−ν}/Γ(ν) · r^ν K_ν(r), with r = ‖(x − y)/σ‖ (no √(2ν), as in the paper).

    ν = 1/2 is e^{−r}, ν = 3/2 is (1 + r)e^{−r}, ν = 5/2 is (1 + r + r²/3)e^{−r}. On R^d the RKHS is
    the Sobolev space of smoothness s = ν + d/2, see :meth:`sobolev`.

    >>> import numpy as np
    >>> Matern(1.5, 1.0)(np.array([[0.0]]), np.array([[1.0]])).round(6)
    array([[0.735759]])
    """

    name = "matern"

    def __init__(self, nu: float = 1.5, sigma: Any = 1.0, *, product: bool = False) -> None:
        super().__init__(sigma, product=product)
        self.nu = as_positive(nu, "nu")

    @classmethod
    def sobolev(cls, s: float, d: int, sigma: Any = 1.0) -> Self:
        """The paper's Sobolev kernel of smoothness s > d/2 on R^d: ν = s − d/2."""
        if not s > d / 2:
            raise ValueError(f"a Sobolev kernel on R^{d} needs s > d/2 = {d / 2}; got s = {s}")
        return cls(s - d / 2, sigma)

    @property
    def polynomial(self) -> np.ndarray | None:
        """For ν = p + 1/2 the coefficients c with κ = e^{−r} Σ_k c_k r^k (all positive); None for
        other orders.
        """
        p = self.nu - 0.5
        if p != round(p) or p > 20:
            return None
        p, f = int(p), math.factorial
        return np.array(
            [f(p) / f(2 * p) * f(2 * p - k) / (f(p - k) * f(k)) * 2.0**k for k in range(p + 1)]
        )

    def log_profile(self, t: Array) -> Array:
        xp = namespace(t)
        r = xp.sqrt(t)
        c = self.polynomial
        if c is None:
            return self._log_bessel(r)
        one, p = xp.ones_like(r), c.shape[0] - 1
        # where r > 1, r^p is factored out: it may overflow
        small, inverse = xp.minimum(r, one), one / xp.maximum(r, one)
        total = sum(
            float(coefficient) * small**k * inverse ** (p - k) for k, coefficient in enumerate(c)
        )
        with quiet():
            out = xp.log(total) - p * xp.log(inverse) - r
        return xp.where(xp.isinf(r), -r, xp.minimum(out, xp.zeros_like(r)))

    def _log_bessel(self, r: Array) -> Array:
        xp, nu = namespace(r), self.nu
        with quiet():
            bessel = on_host(kve)(nu, r)
            # far out e^r K_ν(r) is √(π/2r), up to what vanishes beside r
            bessel = xp.where(r > _FAR, xp.sqrt(0.5 * math.pi / r), bessel)
            direct = (
                (1.0 - nu) * math.log(2.0) - math.lgamma(nu) + nu * xp.log(r) + xp.log(bessel) - r
            )
            # K_ν overflows at small r, where two terms of the ascending series are exact to
            # rounding
            u = 0.25 * r * r
            series = (
                xp.log1p(-u / (nu - 1.0) * (1.0 - 0.5 * u / (nu - 2.0)))
                if nu > 2.5
                else xp.zeros_like(r)
            )
        small = xp.isinf(bessel) | (r == 0.0)
        out = xp.where(small, series, xp.minimum(direct, xp.zeros_like(r)))
        return xp.where(xp.isinf(r), -r, out)

    def reach(self, log_level: float) -> float:
        def excess(r: float) -> float:
            return float(self.log_profile(np.array([r * r]))[0]) - log_level

        high = 1.0
        while excess(high) > 0.0:
            high *= 2.0
        # the other side of the root than the one within the tolerance
        return float(brentq(excess, 0.0, high, xtol=1e-9)) + 1e-9

    def with_sigma(self, sigma: Any) -> Self:
        return type(self)(self.nu, sigma, product=self.product)

    def parameters(self) -> dict[str, Any]:
        return {"nu": self.nu, **super().parameters()}
