"""Leases over HTTP: what is sent, and what is made of bad answers."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from entrepot.client.errors import BadAnswer, ClientError, Unreachable
from entrepot.client.queue_leases import LeaseGone, Login, ManagementRefused, QueueLeases


class Fake(ThreadingHTTPServer):
    """Answers what it is told to, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[tuple[int, bytes]] = []
        self.asked: list[tuple[str, str, Any, str | None]] = []

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"

    def say(self, status: int, document: object) -> None:
        self.answers.append((status, json.dumps(document).encode()))


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Fake

    def do_GET(self) -> None:
        size = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(size)) if size else None
        self.server.asked.append((self.command, self.path, body, self.headers["Authorization"]))
        status, data = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_POST = do_GET  # noqa: N815

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def fake() -> Iterator[Fake]:
    server = Fake()
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def leases(fake: Fake) -> Iterator[QueueLeases]:
    made = QueueLeases(fake.address, Login("ana", "secret"), "a/b")
    yield made
    made.close()


def test_what_is_asked_for(fake: Fake, leases: QueueLeases) -> None:
    fake.say(200, {"lease": "7", "ranges": [[0, 1, 3, 2]], "until_ms": 1})
    assert leases.lease(5, 30) == ("7", [(0, 1, 3)], [], [])
    said = {"lease": None, "ranges": [], "leased_by_others": [[0, 1, 3]], "dying": [[0, 1, 2]]}
    fake.say(200, said)
    assert leases.lease_again([(0, 1, 3)], 30) == (None, [], [(0, 1, 3)], [(0, 1, 2)])
    assert leases.lease_again([], 30) == (None, [], [], [])  # Nothing is asked.
    fake.say(200, {"lease": "8", "idle_ms": 70})
    assert leases.idle_ms("7") == 70
    fake.say(200, {"lease": "8", "idle_ms": 70})
    assert leases.take_over("7", [(0, 2, 3)], 9) == "8"
    for call in (
        lambda: leases.settle("7", [(0, 1, 2)]),
        lambda: leases.release("7", [(0, 2, 3)], failed=True),
        lambda: leases.reject("7", [(0, 2, 3)]),
        lambda: leases.renew("7", 9),
    ):
        fake.say(200, {})
        call()
    path = "/api/queues/%2F/a%2Fb"
    assert [(method, where, body) for method, where, body, _ in fake.asked] == [
        ("POST", f"{path}/lease", {"count": 5, "seconds": 30}),
        ("POST", f"{path}/lease", {"ranges": [[0, 1, 3]], "seconds": 30}),
        ("POST", f"{path}/leases/7", {}),
        (
            "POST",
            f"{path}/leases/7",
            {"take_over": True, "release": [[0, 2, 3]], "renew_seconds": 9},
        ),
        ("POST", f"{path}/leases/7", {"settle": [[0, 1, 2]]}),
        ("POST", f"{path}/leases/7", {"release": [[0, 2, 3]], "failed": True}),
        ("POST", f"{path}/leases/7", {"reject": [[0, 2, 3]]}),
        ("POST", f"{path}/leases/7", {"renew_seconds": 9}),
    ]
    assert fake.asked[0][3] == "Basic YW5hOnNlY3JldA=="


def test_answers_that_are_no(fake: Fake, leases: QueueLeases) -> None:
    fake.say(404, {"reason": "no queue 'a/b'"})
    with pytest.raises(ManagementRefused, match="no queue") as refused:
        leases.facts()
    assert not refused.value.retriable
    fake.say(503, {"error": "x"})
    with pytest.raises(ManagementRefused, match="HTTP status 503") as refused:
        leases.renew("7", 1)
    assert refused.value.retriable
    fake.say(404, {"reason": "over"})
    with pytest.raises(LeaseGone, match="over"):
        leases.settle("7", [])
    fake.say(200, {"lease": 8})
    with pytest.raises(BadAnswer):
        leases.take_over("7", [], 1)


@pytest.mark.parametrize("document", [b"<html>", b"[]", b"{}", b'{"lease": 1, "ranges": [1]}'])
def test_answers_that_make_no_sense(fake: Fake, leases: QueueLeases, document: bytes) -> None:
    fake.answers.append((200, document))
    with pytest.raises(BadAnswer, match="no broker's management port"):
        leases.lease(1, 1)


def test_nobody_is_there() -> None:
    with pytest.raises(Unreachable):
        QueueLeases("127.0.0.1:1", Login(), "q").facts()
    with pytest.raises(ClientError, match="is not an address"):
        QueueLeases("x:y", Login(), "q")
