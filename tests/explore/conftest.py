"""A page that is being served, and a client that can also ask what no browser would."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import numpy as np
import pytest

import ksos


class Reply(NamedTuple):
    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def value(self) -> Any:
        return json.loads(self.content)


class Client:
    """Requests to a page, as they are, and as the page makes them."""

    def __init__(self, page: ksos.Explorer, tab: str = "one") -> None:
        address = urlsplit(page.url)
        self.host, self.root, self.tab = address.netloc, address.path, tab

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Reply:
        connection = http.client.HTTPConnection(self.host, timeout=240)
        try:
            connection.request(
                method,
                path,
                body,
                {name.replace("_", "-"): value for name, value in headers.items()},
            )
            got = connection.getresponse()
            return Reply(got.status, dict(got.getheaders()), got.read())
        finally:
            connection.close()

    def ask(self, question: str, **asked: Any) -> Reply:
        body = json.dumps({"tab": self.tab, **asked}).encode()
        return self.send(
            "POST",
            self.root + question,
            body,
            Content_Type="application/json",
            Origin=f"http://{self.host}",
        )


def moons(n: int = 120) -> np.ndarray:
    """Two half circles, without scikit-learn's import."""
    rng = np.random.default_rng(3)
    angle, side = rng.uniform(0.0, np.pi, n), rng.integers(0, 2, n)
    upper = np.c_[np.cos(angle), np.sin(angle)]
    return np.where(side[:, None] == 1, upper, [1.0, 0.5] - upper) + rng.normal(0.0, 0.1, (n, 2))


@pytest.fixture(scope="module")
def X() -> np.ndarray:
    return np.c_[moons(), np.random.default_rng(4).normal(size=120)]


@pytest.fixture(scope="module")
def page(X: np.ndarray) -> Iterator[ksos.Explorer]:
    with ksos.explore(X, feature_names=["a", "b", "c"], open_browser=False) as page:
        yield page


@pytest.fixture(scope="module")
def client(page: ksos.Explorer) -> Client:
    return Client(page)
