"""An extra that is not installed is named with its pip line, where it is needed."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from ksos import adapters


@pytest.mark.skipif(find_spec("skpro") is not None, reason="skpro is installed")
def test_a_missing_skpro_is_named_with_its_pip_line() -> None:
    assert "KernelSoSDistFitter" in dir(adapters)
    with pytest.raises(ImportError, match=r'KernelSoSDist\w+ needs skpro.*"kernel-sos\[skpro\]"'):
        adapters.KernelSoSDistFitter()
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        _ = adapters.Nothing
