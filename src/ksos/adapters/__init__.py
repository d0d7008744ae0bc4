"""Densities and estimators in the interfaces of other libraries. Nothing of theirs is imported
before it is used.
"""

from __future__ import annotations
