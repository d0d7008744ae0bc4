"""The file of a whole conditional density, regressors included.

The body is written by ``skops.io``, a format for scikit-learn's objects that names every type and
calls nothing of what it names before a reader has agreed to all types. A reader here agrees to
classes of ksos, to what skops trusts by itself, and to the few types below. Regressors of other
libraries raise an error that lists their types, unless you trust these.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Collection
from importlib import import_module
from typing import Any

from ksos.density import load as load_density
from ksos.exceptions import ModelFormatError
from ksos.ground import replace_whole

_KIND = b"\x89KSOC"
_MAGIC = _KIND + b"4\r\n\x1a"  # the fourth kind of such files: the first two were pickles
_START = len(_MAGIC) + hashlib.sha256().digest_size
# what the default regressors hold beside the types that skops trusts: none runs code of the file
_TRUSTED = {
    "functools.partial",
    "numpy.dtype",
    "sklearn.compose._column_transformer.make_column_selector",
    "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
    "sklearn.utils.validation.check_array",
}


def load(path: str | os.PathLike[str], *, trusted: Collection[str] | bool = ()) -> Any:
    """Read the file ``path``: a density or mixture, bit for bit as it was saved, or a
    :class:`~ksos.KernelSoSConditional`.

    Nothing in the file is executed, and nothing is allocated that the file's own length does not
    cover. A conditional density holds regressors. Those of scikit-learn are read, and other types
    raise an error that lists all of them, as ``trusted`` takes them. It raises ModelFormatError for
    every file that is not a whole, undamaged model of a known version, and OSError if the file
    cannot be read.

    Parameters
    ----------
    path : str or path
        The file.
    trusted : collection of str or True, default=()
        Names of further types that a conditional density may hold, such as
        ``["mypackage.MyRegressor"]``. True trusts every type: only for files whose origin you
        know.

    Examples
    --------
    >>> import os, tempfile
    >>> import ksos
    >>> p = ksos.SoSDensity(ksos.kernels.Gaussian(1.0), [[0.0]], [[1.0]], normalize=True)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     p.save(os.path.join(folder, "p.ksos"))
    ...     q = ksos.load(os.path.join(folder, "p.ksos"))
    >>> bool(q.pdf([[0.3]]) == p.pdf([[0.3]]))
    True
    """
    return load_conditional(path, trusted) if is_conditional_file(path) else load_density(path)


def save_conditional(estimator: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted :class:`~ksos.KernelSoSConditional` to ``path``, whole or not at all."""
    import skops.io  # heavy, and needed by files alone

    try:
        body = skops.io.dumps(estimator)
    except TypeError as error:
        raise TypeError(
            f"{os.fsdecode(path)} was not written, for skops cannot store a part of the regressors:"
            f" {error}; use a regressor that consists of scikit-learn's classes, or joblib.dump"
        ) from None
    replace_whole(path, [_MAGIC, hashlib.sha256(body).digest(), body])


def is_conditional_file(path: str | os.PathLike[str]) -> bool:
    """Whether the file begins as :func:`save_conditional` begins one."""
    with open(path, "rb") as file:
        return file.read(len(_KIND)) == _KIND


def load_conditional(path: str | os.PathLike[str], trusted: Collection[str] | bool = ()) -> Any:
    """Read the conditional density in the file ``path``, with ``trusted`` as in :func:`load`.

    It raises ModelFormatError for every file that :func:`save_conditional` has not written.
    """
    if isinstance(trusted, str):
        raise TypeError(f"trusted must be a list of names of types, or True; got {trusted!r}")
    name = os.fsdecode(path)
    with open(path, "rb") as file:
        content = file.read()
    if content.startswith(tuple(_KIND + number + b"\r\n" for number in (b"", b"2", b"3"))):
        raise ModelFormatError(
            f"{name} was written by an earlier version of ksos, whose conditional densities cannot"
            " be read; fit it again with ksos fit --target"
        )
    if not content.startswith(_MAGIC) or len(content) <= _START:
        raise ModelFormatError(
            f"{name} is not a conditional density that ksos wrote; expected a file of ksos fit"
            " --target"
        )
    body = content[_START:]
    if hashlib.sha256(body).digest() != content[len(_MAGIC) : _START]:
        raise ModelFormatError(
            f"{name} is damaged: its checksum does not agree with its content; copy it again from"
            " its source"
        )
    try:
        return _read(body, trusted)
    except ModelFormatError as error:
        raise ModelFormatError(f"{name} {error}") from None
    except Exception as error:  # a forged or outdated file can make skops raise anything
        raise ModelFormatError(
            f"{name} cannot be read ({type(error).__name__}: {error}); fit again with the"
            " installed versions of ksos and scikit-learn"
        ) from None


# What skops makes of ``body``, if its types are known or trusted.
def _read(body: bytes, trusted: Collection[str] | bool) -> Any:
    import skops.io  # heavy, and needed by files alone

    from ksos.estimators.conditional import KernelSoSConditional

    with zipfile.ZipFile(io.BytesIO(body)) as members:
        # a small file must not unfold to a large one
        if sum(member.file_size for member in members.infolist()) > len(body):
            raise ModelFormatError("is compressed, which files of ksos are not; fit it again")
    types, also = skops.io.get_untrusted_types(data=body), () if trusted is True else trusted or ()
    unknown = [one for one in types if not _is_known(one) and one not in also]
    if unknown and trusted is not True:
        raise ModelFormatError(
            f"holds types that are not known to be harmless: {', '.join(unknown)}; if you know"
            f" where the file comes from, trust them: ksos.load(path, trusted={unknown!r}), or"
            " ksos predict --trust"
        )
    found = skops.io.loads(body, trusted=types)
    if not isinstance(found, KernelSoSConditional):
        raise ModelFormatError(f"holds no conditional density; got {type(found).__name__}")
    return found


# Whether ``name`` is on the list above, or a class of ksos: no function, which runs.
def _is_known(name: str) -> bool:
    module, _, short = name.rpartition(".")
    if name in _TRUSTED or not module.startswith("ksos.") or "__" in module:
        return name in _TRUSTED
    found = vars(import_module(module)).get(short)
    return isinstance(found, type) and found.__module__ == module
