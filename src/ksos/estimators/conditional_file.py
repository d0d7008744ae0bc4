"""The file of a whole conditional density, regressors included: a pickle that is read with a list
of the classes it may name.

Regressors are scikit-learn's objects, for which there is no format but pickle, and a pickle can
name any function for its reader to call. This reader looks up classes of scikit-learn and ksos, and
the few functions by which NumPy's arrays come back, and nothing else. What it calls are their
constructors, which store their arguments. A regressor from another library raises an error unless
you trust the file.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import pickle
from importlib import import_module
from typing import Any, NamedTuple

from ksos.density.io import load as load_density
from ksos.estimators.conditional import KernelSoSConditional
from ksos.exceptions import ModelFormatError
from ksos.ground.files import replace_whole

__all__ = [
    "StoredConditional",
    "is_conditional_file",
    "load",
    "load_conditional",
    "save_conditional",
]

_KIND = b"\x89KSOC"
_MAGIC = _KIND + b"2\r\n\x1a"  # files of the first kind hold classes that are gone
_PACKAGES = ("density", "estimators", "integrals", "kernels", "measures", "solvers", "quadrature")
_LIBRARIES = (
    *(f"ksos.{name}." for name in _PACKAGES),
    "ksos.space.space",
    "ksos.space.whitening",
    "ksos.space.coordinates",
    "ksos.space.embedding",
    "sklearn.",
)
_NOT = ("sklearn.externals", "sklearn.datasets", "sklearn.utils._testing", "sklearn.utils._joblib")
_SHORT_NAMES = {"_loss": "sklearn._loss._loss"}
"""What a module of scikit-learn 1.7 calls itself, and what it is: the short name would be looked
for in the current folder."""
_FUNCTIONS = {
    "numpy._core.multiarray": {"_reconstruct", "scalar"},
    "numpy._core.numeric": {"_frombuffer"},
    "numpy": {"dtype", "ndarray", "float64", "float32", "int64", "int32", "bool_", "str_"},
    "numpy.random._pickle": {"__bit_generator_ctor", "__generator_ctor", "__randomstate_ctor"},
    "numpy.random._mt19937": {"MT19937"},
    "numpy.random._pcg64": {"PCG64"},
    "numpy.random.bit_generator": {"SeedSequence", "__pyx_unpickle_SeedSequence"},
    "sklearn.utils.validation": {"check_array"},
    "builtins": {"slice", "set", "frozenset", "complex", "bytearray", "range", "object"},
    "collections": {"OrderedDict", "defaultdict"},
    "copyreg": {"_reconstructor"},
    "functools": {"partial"},
}


class StoredConditional(NamedTuple):
    """What such a file holds."""

    estimator: KernelSoSConditional
    columns: tuple[str, ...] | None = None
    """The names of the columns of x, in their order."""
    target: str = "y"
    categories: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Columns of text: the name of each, or its number in x from 1, and the values seen."""

    @property
    def named(self) -> bool:
        """Whether the estimator was fitted to a table with names."""
        return "feature_names_in_" in vars(self.estimator)


def load(path: str | os.PathLike[str]) -> Any:
    """Read the file ``path``: a density or mixture, bit for bit as it was saved, or the
    :class:`~ksos.KernelSoSConditional` that ``ksos fit --target`` has fitted.

    Nothing in the file of a density is executed, and nothing is allocated that the file's own
    length does not cover. The regressors of a conditional density are scikit-learn's objects, which
    only pickle stores. Classes of scikit-learn and ksos are created again, and no other name is
    looked up. It raises ModelFormatError for every file that is not a whole, undamaged model of a
    known version, and OSError if the file cannot be read.

    >>> import os, tempfile
    >>> import ksos
    >>> p = ksos.SoSDensity(ksos.kernels.Gaussian(1.0), [[0.0]], [[1.0]], normalize=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     p.save(os.path.join(folder, "p.ksos"))
    ...     q = ksos.load(os.path.join(folder, "p.ksos"))
    >>> bool(q.pdf([[0.3]]) == p.pdf([[0.3]]))
    True
    """
    return load_conditional(path).estimator if is_conditional_file(path) else load_density(path)


def save_conditional(stored: StoredConditional, path: str | os.PathLike[str]) -> None:
    """Write all of ``stored`` to ``path``, whole or not at all."""
    body = pickle.dumps(stored, protocol=5)
    replace_whole(path, [_MAGIC, hashlib.sha256(body).digest(), body])


def is_conditional_file(path: str | os.PathLike[str]) -> bool:
    """Whether the file begins as :func:`save_conditional` begins one."""
    with open(path, "rb") as file:
        return file.read(len(_KIND)) == _KIND


def load_conditional(path: str | os.PathLike[str], trust: bool = False) -> StoredConditional:
    """Read the conditional density in the file ``path``.

    With ``trust`` the pickle may name anything: only for files whose origin you know. It raises
    ModelFormatError for every other file.
    """
    name = os.fsdecode(path)
    with open(path, "rb") as file:
        content = file.read()
    if content.startswith(_KIND + b"\r\n"):
        raise ModelFormatError(
            f"{name} was written by an earlier version of ksos, whose conditional densities cannot "
            "be read; fit it again with ksos fit --target"
        )
    start = len(_MAGIC) + hashlib.sha256().digest_size
    if content[: len(_MAGIC)] != _MAGIC or len(content) <= start:
        raise ModelFormatError(
            f"{name} is not a conditional density that ksos wrote; expected a file of ksos fit "
            "--target"
        )
    body = content[start:]
    if hashlib.sha256(body).digest() != content[len(_MAGIC) : start]:
        raise ModelFormatError(
            f"{name} is damaged: its checksum does not agree with its content; copy it again from "
            "its source"
        )
    try:
        found = pickle.loads(body) if trust else _Reader(io.BytesIO(body)).load()
    except ModelFormatError as error:
        raise ModelFormatError(f"{name}: {error}") from None
    except Exception as error:  # whatever a forged or outdated pickle makes of its reader
        raise ModelFormatError(
            f"{name} cannot be read ({type(error).__name__}: {error}); fit again with the "
            "installed versions of ksos and scikit-learn"
        ) from None
    if not (
        isinstance(found, StoredConditional) and isinstance(found.estimator, KernelSoSConditional)
    ):
        raise ModelFormatError(f"{name} holds no conditional density; got {type(found).__name__}")
    return found


class _Reader(pickle.Unpickler):
    """Names resolve to what the lists above hold, or not at all."""

    def find_class(self, module: str, name: str) -> Any:
        module = _SHORT_NAMES.get(module, module)
        if name in _FUNCTIONS.get(module, ()):
            return functools.partial if module == "functools" else super().find_class(module, name)
        if module.startswith(_LIBRARIES) and not module.startswith(_NOT) and name.isidentifier():
            found = vars(import_module(module)).get(name)
            own = isinstance(found, type) and _SHORT_NAMES.get(
                found.__module__, found.__module__
            ).startswith(_LIBRARIES)
            # compiled classes come back by functions of such names
            if own or (callable(found) and name.startswith("__pyx_unpickle_")):
                return found
        raise ModelFormatError(
            f"it names {module[:80]}.{name[:80]}, which is not on the list of what may be read; a "
            "regressor from another library needs the option to trust the file (--trust), and that "
            "you know where the file comes from"
        )
