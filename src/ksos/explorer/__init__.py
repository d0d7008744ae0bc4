"""A page in the browser that follows a fit: :func:`explore` serves it from this process, to this
machine alone.
"""

from __future__ import annotations

import threading
import webbrowser
from typing import Any

from ksos.density import SoSDensity
from ksos.estimators import KernelSoSDensity
from ksos.explorer.server import LARGEST_BODY, Server
from ksos.explorer.session import DRAFTS, Cancelled, Samples, Session, Settings

__all__ = [
    "DRAFTS",
    "LARGEST_BODY",
    "Cancelled",
    "Explorer",
    "Samples",
    "Session",
    "Settings",
    "explore",
]

_HOW = "# X is the array that was explored"


class Explorer:
    """A page that is being served: its address, and what was fitted there last. It ends with
    :meth:`close`, or as a context manager.

    Attributes
    ----------
    url : str
        The address, with the token without which nothing is answered.
    estimator_ : KernelSoSDensity
        What was fitted last, in any tab.
    distribution_ : SoSDensity
        Its density, with the names of the features that were chosen.

    Examples
    --------
    >>> import ksos
    >>> with ksos.explore([[0.0], [0.4], [1.0]], open_browser=False) as page:
    ...     page.url.startswith("http://127.0.0.1:")
    True
    """

    def __init__(self, session: Session, port: int = 0) -> None:
        self._session = session
        self._server = Server(session, port)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="ksos explore",
            daemon=True,
        )
        self._thread.start()

    @property
    def url(self) -> str:
        """The address, with the token without which nothing is answered."""
        return self._server.url

    @property
    def estimator_(self) -> KernelSoSDensity:
        """What was fitted last, in any tab."""
        return self._session.last.estimator

    @property
    def distribution_(self) -> SoSDensity:
        """Its density, with the names of the features that were chosen."""
        return self._session.last.density

    def open(self) -> bool:
        """Show the page in the browser; False where there is none."""
        return webbrowser.open(self.url)

    def wait(self) -> None:
        """Serve until :meth:`close`, or Ctrl-C."""
        while self._thread.is_alive():
            # in pieces: a join without an end would not hear Ctrl-C everywhere
            self._thread.join(0.2)

    def close(self) -> None:
        """Stop: fits that run are canceled, and the address answers no more."""
        self._session.close()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Explorer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Explorer({self.url})"

    def _repr_html_(self) -> str:
        return f'<a href="{self.url}" target="_blank" rel="noreferrer">ksos explore</a>'


def explore(
    X: Any,
    *,
    sample_weight: Any = None,
    feature_names: Any = None,
    port: int = 0,
    open_browser: bool = True,
    how_to_read: str = _HOW,
) -> Explorer:
    """Explore the samples ``X`` in the browser: move bandwidth, λ and support points, and see the
    certified density follow.

    The page comes from this process and is served on the loopback interface alone; nothing leaves
    the machine.

    Parameters
    ----------
    X : array (n, d) or table
    sample_weight : array (n,), optional
    feature_names : sequence of d words, optional
        Default: those of the table, else x1, x2, …
    port : int
        0 takes a free one.
    open_browser : bool
        Show the page at once; else its address is ``.url`` of what is returned.
    how_to_read : str
        The lines of Python that read ``X`` (and ``sample_weight``), for the program that the page
        shows.

    Returns
    -------
    Explorer
        With ``url``, ``estimator_``, ``distribution_``, ``wait()`` and ``close()``.

    >>> import numpy as np
    >>> with explore(np.random.default_rng(0).normal(size=(50, 2)), open_browser=False) as page:
    ...     page.url.startswith("http://127.0.0.1:")
    True
    """
    page = Explorer(Session(Samples.of(X, sample_weight, feature_names, how_to_read)), port)
    if open_browser:
        page.open()
    return page
