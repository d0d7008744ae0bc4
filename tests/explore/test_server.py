"""Who may ask, and what: the address is a secret, other pages and other hosts are refused, bodies
are small, files are fixed.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
from pathlib import Path

import pytest

import ksos
from ksos.explorer import LARGEST_BODY
from tests.explore.conftest import Client

JSON = "application/json"
BODY = json.dumps({"tab": "one"}).encode()


def test_the_page_and_its_files_come_with_a_policy(client: Client) -> None:
    kinds = {
        "": "text/html",
        "style.css": "text/css",
        "density.js": "text/javascript",
        "page.js": "text/javascript",
        "icon.svg": "image/svg",
    }
    for name, kind in kinds.items():
        reply = client.send("GET", client.root + name)
        assert reply.status == 200 and reply.headers["Content-Type"].startswith(kind)
        assert reply.headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert "unsafe" not in reply.headers["Content-Security-Policy"]
        assert (reply.headers["Referrer-Policy"], reply.headers["X-Content-Type-Options"]) == (
            "no-referrer",
            "nosniff",
        )
        assert reply.headers["Cache-Control"] == "no-store"


def test_every_file_of_the_page_is_served_and_asks_no_other_host() -> None:
    folder = Path(ksos.__file__).parent / "explorer" / "static"
    with ksos.explore([[0.0], [1.0]], open_browser=False) as page:
        client = Client(page)
        for file in folder.iterdir():
            name = "" if file.name == "index.html" else file.name
            assert client.send("GET", client.root + name).content == file.read_bytes()
            assert set(re.findall(r"\w+://[^\"]*", file.read_text())) <= {
                "http://www.w3.org/2000/svg"
            }, "a name of SVG, and no address"


@pytest.mark.parametrize("token", ["", "/", "/x/", "/{}", "/{}x/", "/{}%00/", "/../{}/"])
def test_a_wrong_token_is_refused(client: Client, token: str) -> None:
    path = token.replace("{}", client.root.strip("/")) or "/"
    for method, body in (("GET", None), ("POST", BODY)):
        reply = client.send(
            method, path + "fit" if method == "POST" else path, body, Content_Type=JSON
        )
        assert reply.status == 403 and client.root.strip("/") not in reply.content.decode()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1:1", "localhost", ""]
)
def test_a_foreign_host_is_refused(client: Client, host: str) -> None:
    assert client.send("GET", client.root, Host=host).status == 421
    assert (
        client.send("POST", client.root + "data", BODY, Content_Type=JSON, Host=host).status == 421
    )


def test_localhost_is_this_host(client: Client) -> None:
    assert (
        client.send("GET", client.root, Host=f"localhost:{client.host.split(':')[1]}").status == 200
    )


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "https://{}", "http://{}.evil.example", "http://127.0.0.1"],
)
def test_a_foreign_origin_is_refused(client: Client, origin: str) -> None:
    origin = origin.format(client.host)
    assert (
        client.send("POST", client.root + "data", BODY, Content_Type=JSON, Origin=origin).status
        == 403
    )
    assert client.send("GET", client.root, Sec_Fetch_Site="cross-site").status == 403


@pytest.mark.parametrize(
    "path",
    [
        "../server.py",
        "..%2fserver.py",
        "static/index.html",
        "/etc/passwd",
        "index.html",
        "%2e%2e/session.py",
        "?/x",
        "fit",
    ],
)
def test_only_known_files_are_read(client: Client, path: str) -> None:
    reply = client.send("GET", client.root + path)
    assert (reply.status == 404) != path.startswith("?") and b"import" not in reply.content


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"x" * (LARGEST_BODY + 1), {"Content_Type": JSON}, 413),
        (b"", {"Content_Type": JSON, "Content_Length": "99999999999999999999"}, 413),
        (b"", {"Content_Type": JSON, "Content_Length": "-1"}, 411),
        (b"", {"Content_Type": JSON, "Transfer_Encoding": "chunked"}, 411),
        (BODY, {"Content_Type": "text/plain"}, 415),
        (BODY, {}, 415),
        (b"{", {"Content_Type": JSON}, 400),
        (b'{"tab": NaN}', {"Content_Type": JSON}, 400),
        (b"[" * 9000, {"Content_Type": JSON}, 400),
        (b"[1]", {"Content_Type": JSON}, 400),
        (b"{}", {"Content_Type": JSON}, 400),
        (b'{"tab": ""}', {"Content_Type": JSON}, 400),
    ],
)
def test_a_strange_body_is_refused(
    client: Client, body: bytes, headers: dict[str, str], status: int
) -> None:
    reply = client.send("POST", client.root + "data", body, **headers)
    assert reply.status == status and reply.value["error"]


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "TRACE"])
def test_other_methods_are_not_known(client: Client, method: str) -> None:
    assert client.send(method, client.root).status == 501


def test_it_listens_to_this_machine_alone_and_stops(page: ksos.Explorer) -> None:
    with ksos.explore([[0.0], [1.0]], open_browser=False) as other:
        assert other.url != page.url and Client(other).send("GET", Client(other).root).status == 200
        host, port = Client(other).host.split(":")
        assert host == "127.0.0.1"
        assert Client(other).send("GET", Client(page).root).status == 403, (
            "every page has its own token"
        )
        kept = http.client.HTTPConnection(host, int(port), timeout=10)  # as browsers keep theirs
        kept.request("GET", Client(other).root)
        assert kept.getresponse().read()
    with pytest.raises((OSError, http.client.HTTPException)):
        kept.request("GET", Client(other).root)
        kept.getresponse()
    kept.close()
    with pytest.raises(OSError), socket.create_connection((host, int(port)), timeout=1):
        pass
