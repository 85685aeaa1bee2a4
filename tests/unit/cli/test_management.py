"""What a broker's answers mean to a command, and those of others."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
from typing import Any

import click
import pytest

from entrepot.cli.management import Api, Refused, Unreachable, arguments_of

ANSWERS = {
    "/api/queues/%2F/a%20b?sort=name": (200, b'[{"name": "a"}]'),
    "/api/nothing": (204, b""),
    "/api/gone": (404, b'{"error": "not_found", "reason": "no queue"}'),
    "/api/bare": (500, b""),
    "/api/page": (200, b"<html>"),
}


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        status, body = ANSWERS[self.path]
        assert self.headers["Authorization"] == "Basic Z3Vlc3Q6Z8O8"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Nobody wants to know."""


@pytest.fixture
def api() -> Iterator[Api]:
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield Api(f"127.0.0.1:{server.server_port}", "guest", "gü")
        server.shutdown()


def test_answers(api: Api) -> None:
    assert api.get("queues", "/", "a b", sort="name") == [{"name": "a"}]
    assert api.get("nothing") is None
    with pytest.raises(Refused, match=r"^no queue$") as refused:
        api.get("gone")
    assert refused.value.status == 404
    with pytest.raises(Refused, match="status 500"):
        api.get("bare")
    with pytest.raises(Unreachable, match="is no broker"):
        api.get("page")


@pytest.mark.parametrize("address", ["", "host", ":80", "host:", "host:x", "host:99999"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(click.ClickException, match="not an address"):
        Api(address, "guest", "guest")


def test_arguments() -> None:
    given = ("n=1", "t=text", "b=true", 'l=["a"]', "e=")
    assert arguments_of(given) == {"n": 1, "t": "text", "b": True, "l": ["a"], "e": ""}
    assert json.dumps(arguments_of(())) == "{}"
