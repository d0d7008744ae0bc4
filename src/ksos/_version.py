"""The version, in a file that imports nothing: the package, its model files, its command line and
its packaging all read it here.
"""

from __future__ import annotations

__all__ = ["__version__"]

__version__ = "0.1.0"
