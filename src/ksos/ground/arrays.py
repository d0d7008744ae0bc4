"""The only file that knows array backends.

Everything numerical asks :func:`namespace` for the array-API namespace of its arguments and
computes with that; what the standard lacks (special functions, triangular solves, a few lowest
eigenvalues, the backends' own errors) lives here and nowhere else. Decisions about single numbers
and short lists of them are taken on the host.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any

import array_api_compat.numpy as numpy_namespace
import numpy as np
from array_api_compat import (
    array_namespace,
    is_cupy_array,
    is_torch_array,
    is_torch_namespace,
    is_writeable_array,
)
from scipy.linalg import cho_factor, cho_solve, solve_triangular

from ksos.ground.lazy import needed

Array = Any


def namespace(*arrays: Array) -> Any:
    """The array-API namespace shared by ``arrays``."""
    if (
        type(arrays[0]) is np.ndarray
    ):  # by far the most common case, asked thousands of times in a fit
        return numpy_namespace
    return array_namespace(*arrays)


def is_numpy(array: Array) -> bool:
    """Whether ``array`` is NumPy's."""
    return isinstance(array, np.ndarray)


def is_other_array(value: Any) -> bool:
    """Whether ``value`` is an array of a backend other than NumPy that fits run on: a torch tensor,
    or a standard-conforming array.

    Arrays that cannot be written to (JAX) or that do not come to the host by themselves (CuPy)
    are left to NumPy's conversion.
    """
    if isinstance(value, (np.ndarray, np.generic)):
        return False
    if is_torch_array(value):
        return True
    return (
        hasattr(value, "__array_namespace__")
        and is_writeable_array(value)
        and not is_cupy_array(value)
    )


def like(value: Any, reference: Array) -> Array:
    """``value`` as a float64 array of the same backend and device as ``reference``."""
    # on the host nothing needs a device, and most calls are here
    if isinstance(reference, np.ndarray):
        return np.asarray(to_numpy(value), dtype=np.float64)
    xp = namespace(reference)
    if (
        type(value) is type(reference)
        and value.dtype == xp.float64
        and value.device == reference.device
    ):
        return value
    return xp.asarray(
        np.array(to_numpy(value), dtype=np.float64), dtype=xp.float64, device=reference.device
    )


def to_numpy(value: Any) -> np.ndarray:
    """``value`` as a NumPy array on the host, without a copy if possible."""
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    return np.asarray(value)


def to_device(value: np.ndarray, device: Any) -> Array:
    """``value`` as a torch tensor on ``device`` ("cpu", "cuda", "cuda:1", …), or an error that says
    why that cannot be.
    """
    torch = needed("torch", f"device={device!r}", '"kernel-sos[torch]"')
    try:
        wanted = torch.device(device)
        if wanted.type == "cuda" and not torch.cuda.is_available():
            raise ValueError(
                f"device={device!r} was asked for, but PyTorch finds no GPU here"
                " (torch.cuda.is_available() is False)"
            )
        # on a GPU this is one copy: pinned buffers, which the processor fills first, are no faster
        return torch.tensor(np.asarray(value, dtype=np.float64, order="C"), device=wanted)
    except RuntimeError as error:
        raise ValueError(f"device={device!r} cannot be used: {error}") from None


def on_host(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function written for NumPy arrays, taking and giving arrays of any backend, also in tuples;
    its work is done on the host.
    """

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        inside = [part for a in arguments for part in (a if isinstance(a, tuple) else (a,))]
        reference = next(filter(is_other_array, inside), None)
        if reference is None:
            return function(*arguments, **options)
        out = function(*map(_moved_to_host, arguments), **options)
        if isinstance(out, tuple):
            return tuple(like(part, reference) for part in out)
        return like(out, reference)

    return call


def _moved_to_host(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_moved_to_host, value))
    return to_numpy(value) if is_other_array(value) else value


def is_tensor(value: Any) -> bool:
    """Whether ``value`` is a torch tensor."""
    return bool(is_torch_array(value))


def on_accelerator(array: Any) -> bool:
    """Whether ``array`` is a torch tensor that lies on a GPU or another accelerator."""
    return is_torch_array(array) and array.device.type != "cpu"


def uniforms(rng: np.random.Generator, shape: tuple[int, ...], reference: Array) -> Array:
    """Uniform numbers in [0, 1): of a torch tensor's device, from a generator that ``rng`` seeds;
    else those of ``rng``.
    """
    if not is_torch_array(reference):
        return like(rng.random(shape), reference)
    import torch

    # drawn where they are needed: the transfer would take longer than the draw
    generator = torch.Generator(device=reference.device).manual_seed(int(rng.integers(2**63 - 1)))
    return torch.rand(shape, generator=generator, dtype=torch.float64, device=reference.device)


def six_digits(values: Any) -> Any:
    """A number, or lists of them, with the six significant digits that a reader wants.

    >>> six_digits([[1.0, 2 / 3], [1234567.8, float("inf")]])
    [[1.0, 0.666667], [1234570.0, inf]]
    """
    found = np.asarray(to_numpy(values) if is_other_array(values) else values)
    if found.dtype.kind != "f":
        return found.tolist()
    return (
        np.array([float(f"{value:.6g}") for value in found.ravel().tolist()])
        .reshape(found.shape)
        .tolist()
    )


def zeros(shape: tuple[int, ...], reference: Array) -> Array:
    """Zeros of the backend and device of ``reference``."""
    xp = namespace(reference)
    return xp.zeros(shape, dtype=xp.float64, device=reference.device)


def exp_in_place(A: Array) -> Array:
    """exp(A), which may take the place of A."""
    if isinstance(A, np.ndarray):
        return np.exp(A, out=A)
    return A.exp_() if is_torch_array(A) else namespace(A).exp(A)


def bits(A: Array) -> Array:
    """The bits of the entries of a float64 array as integers of 64 bits, of a NumPy array or a
    torch tensor.
    """
    if isinstance(A, np.ndarray):
        return A.view(np.int64)
    import torch

    return A.view(torch.int64)


@contextmanager
def full_single_precision() -> Iterator[None]:
    """Products of float32 tensors are rounded to float32, and not to fewer bits, whatever the
    process has chosen.
    """
    torch = sys.modules.get("torch")
    if torch is None or (chosen := torch.get_float32_matmul_precision()) == "highest":
        yield
        return
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(chosen)


def eye(n: int, reference: Array) -> Array:
    """The identity matrix, likewise."""
    xp = namespace(reference)
    return xp.eye(n, dtype=xp.float64, device=reference.device)


def flat(A: Array) -> Array:
    """The entries of ``A`` in one row."""
    return namespace(A).reshape(A, (-1,))


def inner(A: Array, B: Array) -> float:
    """⟨A, B⟩ = Σ A_ij B_ij."""
    if isinstance(A, np.ndarray):
        return float(np.vdot(A, B))
    return float(namespace(A).vecdot(flat(A), flat(B)))


def row_products(A: Array, B: Array) -> Array:
    """Σ_j A_…j B_…j, the inner products of rows."""
    # torch's vecdot is a batched product: of rows with few columns, 50 times slower on a GPU
    return np.vecdot(A, B) if isinstance(A, np.ndarray) else namespace(A).sum(A * B, axis=-1)


def row_squares(A: Array) -> Array:
    """Σ_j A_…j², the squared length of every row."""
    return row_products(A, A)


def norm(A: Array) -> float:
    """‖A‖ = √⟨A, A⟩."""
    return float(np.linalg.norm(A)) if isinstance(A, np.ndarray) else inner(A, A) ** 0.5


def cholesky_solver(H: Array) -> Callable[[Array], Array]:
    """x ↦ H⁻¹x for a positive definite H, through its Cholesky factor; raises one of
    :func:`linalg_errors` where H is not.
    """
    # SciPy's solver is several times faster than a general one for few right-hand sides
    if isinstance(H, np.ndarray):
        factor = cho_factor(H, lower=True, check_finite=False)
        # some libraries let NaN pass
        if not np.all(np.isfinite(np.diagonal(factor[0]))):
            raise np.linalg.LinAlgError("the Cholesky factor is not finite")
        return lambda right: cho_solve(factor, right, check_finite=False)
    xp = namespace(H)
    L = xp.linalg.cholesky(H)
    if not bool(xp.all(xp.isfinite(L))):
        raise np.linalg.LinAlgError("the Cholesky factor is not finite")

    def solve(right: Array) -> Array:
        matrix = xp.reshape(right, (H.shape[0], -1))
        if is_torch_namespace(xp):
            import torch

            return xp.reshape(torch.cholesky_solve(matrix, L), right.shape)
        return xp.reshape(xp.linalg.solve(L.T, xp.linalg.solve(L, matrix)), right.shape)

    return solve


def triangular_inverse(L: Array) -> Array:
    """L⁻¹ for a lower triangular L, with its zeros."""
    identity = eye(L.shape[0], L)
    if isinstance(L, np.ndarray):
        return solve_triangular(L, identity, lower=True, check_finite=False)
    xp = namespace(L)
    if is_torch_namespace(xp):
        import torch

        return torch.linalg.solve_triangular(L, identity, upper=False)
    return xp.linalg.solve(L, identity)


def derivatives(
    function: Callable[..., Any], inputs: Sequence[np.ndarray], *, second: bool
) -> tuple[float, list[np.ndarray], np.ndarray]:
    """Value, gradients and (where asked for; else empty) the matrix of second derivatives of a
    torch function of several vectors.
    """
    torch = needed("torch", "a torch function", '"kernel-sos[torch]"')
    sizes = [len(x) for x in inputs]

    def of_one(x: Any) -> Any:
        return function(*torch.split(x, sizes))

    x = torch.tensor(np.concatenate(inputs), dtype=torch.float64, requires_grad=True)
    value = of_one(x)
    if not isinstance(value, torch.Tensor) or value.numel() != 1:
        raise TypeError(f"a torch function must return a scalar tensor; got {value!r}")
    gradient, curvature = torch.zeros_like(x), torch.zeros((0, 0))
    # a constant has no gradient
    if value.requires_grad:
        (gradient,) = torch.autograd.grad(value.reshape(()), x, materialize_grads=True)
    if second:
        hessian: Any = torch.autograd.functional.hessian  # which has no types
        curvature = hessian(lambda x: of_one(x).reshape(()), x.detach())
    parts = np.split(gradient.detach().numpy(), np.cumsum(sizes)[:-1])
    return float(value.detach()), parts, curvature.numpy()


def linalg_errors() -> tuple[type[Exception], ...]:
    """What the backends in use raise when a factorization fails: for ``except`` clauses, which
    evaluate it only then.
    """
    # torch is not imported for this: what it has not computed cannot have failed in it
    torch = sys.modules.get("torch")
    return (
        (np.linalg.LinAlgError,)
        if torch is None
        else (np.linalg.LinAlgError, torch.linalg.LinAlgError)
    )


def free_device_memory(array: Any) -> float | None:
    """Free bytes on the GPU that holds ``array`` (what its allocator keeps in reserve included);
    None for what lies on the host.
    """
    device = getattr(array, "device", None)
    if getattr(device, "type", "cpu") != "cuda":
        return None
    import torch

    reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return float(torch.cuda.mem_get_info(device)[0] + reserved)


@contextmanager
def memory_errors(fix: str) -> Iterator[None]:
    """Turn a full GPU into a :class:`MemoryError` that ends with the suggested ``fix``."""
    try:
        yield
    except RuntimeError as error:
        torch = sys.modules.get("torch")
        if torch is None or not isinstance(error, torch.OutOfMemoryError):
            raise
        raise MemoryError(
            f"the GPU is out of memory ({str(error).splitlines()[0].rstrip('.')}); {fix}"
        ) from None


def quiet() -> Any:
    """A context in which overflow to infinity and log(0) are silent: used if both are the right
    answer.
    """
    return np.errstate(over="ignore", divide="ignore", invalid="ignore", under="ignore")
