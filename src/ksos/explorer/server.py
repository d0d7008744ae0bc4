"""The HTTP side: loopback only, a token in every address, host and origin checked, small bodies,
fixed files.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, NamedTuple

from ksos.explorer import answers
from ksos.explorer.session import Cancelled, Session, Settings
from ksos.ground.validation import as_count

LARGEST_BODY = 16_384
"""Bytes of a request: settings and coordinates are far smaller, and nothing else is uploaded."""

_LONGEST_TAB = 64  # characters: the page sends a UUID
_SECONDS = 120.0  # without a word from the browser: then a connection ends, and frees its thread
_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    # the token is part of the address
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_STATIC = {
    "": ("index.html", "text/html; charset=utf-8"),
    "style.css": ("style.css", "text/css; charset=utf-8"),
    "density.js": ("density.js", "text/javascript; charset=utf-8"),
    "drawing.js": ("drawing.js", "text/javascript; charset=utf-8"),
    "source.js": ("source.js", "text/javascript; charset=utf-8"),
    "page.js": ("page.js", "text/javascript; charset=utf-8"),
    "icon.svg": ("icon.svg", "image/svg+xml"),
}


class _NotAnswered(Exception):
    """A request that is not answered: the status and why."""

    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


class _Reply(NamedTuple):
    content: bytes
    kind: str
    extra: Mapping[str, str] = {}


class Server(ThreadingHTTPServer):
    """Serves one session on 127.0.0.1 under a token that is part of the printed address."""

    daemon_threads = True
    block_on_close = False

    def __init__(self, session: Session, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.session, self._open = session, set[socket.socket]()
        self.token = secrets.token_urlsafe(24)
        self.hosts = {f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}"}
        self.static = {
            name: _Reply((files("ksos.explorer") / "static" / file).read_bytes(), kind)
            for name, (file, kind) in _STATIC.items()
        }

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """End, connections that a browser keeps open included."""
        super().server_close()
        for request in list(self._open):
            # the browser may be quicker
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is no error."""


class _Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    # small answers must not wait for each other
    disable_nagle_algorithm = True
    timeout = _SECONDS
    server_version, sys_version = "ksos", ""

    def do_GET(self) -> None:
        self._answer(self._get)

    do_HEAD = do_GET

    def do_POST(self) -> None:
        self._answer(self._post)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged: addresses hold the token."""

    def _answer(self, find: Callable[[str], _Reply]) -> None:
        status = HTTPStatus.OK
        try:
            reply = find(self._checked_path())
        except _NotAnswered as error:
            status, reply = error.status, _as_json({"error": str(error)})
            # a body may be unread
            self.close_connection = True
        except Cancelled:
            reply = _as_json({"canceled": True})
        except (ValueError, TypeError, ArithmeticError, MemoryError) as error:
            status, reply = HTTPStatus.UNPROCESSABLE_ENTITY, _as_json({"error": str(error)})
        # the page must hear of it, whatever it is
        except Exception as error:
            why = f"internal error, please report it ({type(error).__name__}: {error})"
            status, reply = HTTPStatus.INTERNAL_SERVER_ERROR, _as_json({"error": why})
        self.send_response(status)
        for name, value in {
            **_HEADERS,
            "Content-Type": reply.kind,
            "Content-Length": str(len(reply.content)),
            **reply.extra,
        }.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(reply.content)

    # What is asked for below the token, once host, origin and token are right.
    def _checked_path(self) -> str:
        if self.headers.get_all("Host", []) not in [[host] for host in self.server.hosts]:
            raise _NotAnswered(
                HTTPStatus.MISDIRECTED_REQUEST,
                "this host name is not served here; use the address that was printed",
            )
        origin = self.headers.get("Origin")
        foreign = origin is not None and origin.removeprefix("http://") not in self.server.hosts
        if foreign or self.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            raise _NotAnswered(HTTPStatus.FORBIDDEN, "requests from other pages are not answered")
        token, slash, rest = self.path.partition("?")[0].removeprefix("/").partition("/")
        if not hmac.compare_digest(token.encode(), self.server.token.encode()) or not slash:
            raise _NotAnswered(
                HTTPStatus.FORBIDDEN,
                "the token of the address is wrong; use the address that was printed",
            )
        return rest

    def _get(self, path: str) -> _Reply:
        if path in self.server.static:
            return self.server.static[path]
        raise _NotAnswered(HTTPStatus.NOT_FOUND, "there is no such page")

    def _post(self, path: str) -> _Reply:
        if path not in _QUESTIONS:
            raise _NotAnswered(HTTPStatus.NOT_FOUND, "there is no such question")
        asked = self._body()
        tab = asked.pop("tab", None)
        if not isinstance(tab, str) or not 0 < len(tab) <= _LONGEST_TAB:
            raise _NotAnswered(HTTPStatus.BAD_REQUEST, "every request names its tab")
        found = _QUESTIONS[path](self.server.session, tab, asked)
        if isinstance(found, bytes):
            return _Reply(
                found,
                "application/octet-stream",
                {"Content-Disposition": 'attachment; filename="model.ksos"'},
            )
        return _as_json(found)

    # The JSON object that was sent.
    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if "Transfer-Encoding" in self.headers or not (length.isascii() and length.isdigit()):
            raise _NotAnswered(HTTPStatus.LENGTH_REQUIRED, "a body needs its length")
        if len(length) > 9 or int(length) > LARGEST_BODY:
            raise _NotAnswered(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a body has at most {LARGEST_BODY} bytes"
            )
        if self.headers.get_content_type() != "application/json":
            raise _NotAnswered(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "a body is application/json")
        try:
            asked = json.loads(self.rfile.read(int(length)), parse_constant=_no_number)
        except (ValueError, RecursionError):
            raise _NotAnswered(HTTPStatus.BAD_REQUEST, "the body is no JSON") from None
        if not isinstance(asked, dict):
            raise _NotAnswered(HTTPStatus.BAD_REQUEST, "the body must be a JSON object")
        return asked


def _no_number(word: str) -> float:
    raise ValueError(f"{word} is no JSON")


def _as_json(value: Any) -> _Reply:
    return _Reply(json.dumps(value, allow_nan=False).encode(), "application/json")


def _fit(session: Session, tab: str, asked: dict[str, Any]) -> Any:
    turn = as_count(asked.pop("turn", 0), "turn", minimum=0)
    return answers.fit(
        session.fit(tab, Settings.of(asked, session.samples.points.shape[1]), turn), session.samples
    )


def _cancel(session: Session, tab: str, _: dict[str, Any]) -> Any:
    session.cancel(tab)
    return {"canceled": True}


def _of_fitted(
    answer: Callable[..., Any], session: Session, tab: str, asked: dict[str, Any]
) -> Any:
    return answer(session.tab(tab).require_fitted(), session.samples, **asked)


_QUESTIONS: dict[str, Callable[[Session, str, dict[str, Any]], Any]] = {
    "data": lambda session, _, __: answers.described(session.samples),
    "fit": _fit,
    "cancel": _cancel,
    "progress": lambda session, tab, _: answers.progress(session.tab(tab)),
    "details": lambda session, tab, _: answers.details(session.tab(tab), session.samples),
    "model": lambda session, tab, _: answers.model_file(session.tab(tab).require_fitted().density),
}
"""What a page may ask, by the last word of the address; always with POST, so that no other page
can.
"""
_QUESTIONS |= {
    name: partial(_of_fitted, getattr(answers, name))
    for name in ("conditional", "box", "samples", "pairs", "program")
}
