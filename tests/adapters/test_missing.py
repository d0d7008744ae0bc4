"""An extra that is not installed is named with its pip line, where it is needed."""

from __future__ import annotations

import pytest

from ksos import adapters


def test_a_missing_skpro_is_named_with_its_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters, "find_spec", lambda name: None)
    with pytest.raises(ImportError, match=r'KernelSoSDist\w+ needs skpro.*"kernel-sos\[skpro\]"'):
        adapters.__getattr__("KernelSoSDistFitter")
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        adapters.__getattr__("Nothing")
