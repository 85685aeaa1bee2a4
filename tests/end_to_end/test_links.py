"""Queue managers: three brokers, and messages for queues of managers that are not neighbours."""

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pika
import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.test_stomp import Client

WAIT_S = 60
NAMES = ("paris", "london", "tokyo")


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            bound = stack.enter_context(socket.socket())
            bound.bind(("127.0.0.1", 0))
            found.append(bound.getsockname()[1])
        return found


def chain(announce: str = "*", **middle: Any) -> dict[str, Broker]:
    """Paris and Tokyo know London only, and London knows both."""
    ports = dict(zip(NAMES, free_ports(3), strict=True))
    links = {"paris": ["london"], "london": ["paris", "tokyo"], "tokyo": ["london"]}
    made = {}
    for name in NAMES:
        settings: dict[str, Any] = {
            "ports.amqp": ports[name],
            "ports.http": 0,
            "manager.name": name,
            "manager.announce": [announce] if announce else [],
            "link": [{"to": to, "address": f"localhost:{ports[to]}"} for to in links[name]],
        }
        if name == "london":
            settings |= {f"manager.{key}": value for key, value in middle.items()}
        made[name] = broker(settings=settings)
    return made


@pytest.fixture(scope="module")
def managers() -> Iterator[dict[str, Broker]]:
    with ExitStack() as stack:
        made = chain()
        for each in made.values():
            stack.enter_context(each)
        yield made
        for each in made.values():
            assert "Traceback" not in each.log_path.read_text()


class Session:
    """A channel of pika's, with confirms."""

    def __init__(self, server: Broker) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def __enter__(self) -> Any:
        return self.channel

    def __exit__(self, *_: object) -> None:
        self.connection.close()


def eventually(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline, "it did not become so"
        time.sleep(0.05)


def said(server: Broker, *command: str) -> str:
    whole = [sys.executable, "-m", "entrepot.cli", *command, "--http", server.http_address]
    return subprocess.run(whole, capture_output=True, text=True, check=True).stdout


def refused(server: Broker, *command: str) -> str:
    """What the command line says when it fails."""
    words = [sys.executable, "-m", "entrepot.cli", *command, "--http", server.http_address]
    found = subprocess.run(words, capture_output=True, text=True)
    assert found.returncode != 0
    return found.stderr.strip().removeprefix("Error: ")


def knows(server: Broker, manager: str) -> bool:
    return any(line.split()[:1] == [manager] for line in said(server, "routes").splitlines())


def get(channel: Any, queue: str) -> Any:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        method, properties, body = channel.basic_get(queue, auto_ack=True)
        if method is not None:
            return properties, body.decode()
        time.sleep(0.05)
    raise AssertionError(f"nothing comes to {queue}")


def put(channel: Any, key: str, body: str, **properties: Any) -> None:
    given = pika.BasicProperties(delivery_mode=2, **properties)
    channel.basic_publish("", key, body.encode(), given, mandatory=True)


def test_a_put_reaches_a_queue_two_managers_away(managers: dict[str, Broker]) -> None:
    eventually(lambda: knows(managers["paris"], "tokyo"))
    with Session(managers["paris"]) as paris, Session(managers["tokyo"]) as tokyo:
        tokyo.queue_declare("orders", durable=True)
        put(paris, "orders@tokyo", "one", headers={"price": 7}, reply_to="answers@paris")
        properties, body = get(tokyo, "orders")
        assert (body, properties.headers["price"]) == ("one", 7)
        paris.queue_declare("answers", durable=True)
        eventually(lambda: knows(managers["tokyo"], "paris"))
        put(tokyo, properties.reply_to, "done")
        assert get(paris, "answers")[1] == "done"


def test_queues_are_announced_and_found_without_a_manager(managers: dict[str, Broker]) -> None:
    with Session(managers["paris"]) as paris, Session(managers["tokyo"]) as tokyo:
        tokyo.queue_declare("stock", durable=True)
        eventually(lambda: "stock" in said(managers["paris"], "routes"))
        put(paris, "stock", "a shirt")
        assert get(tokyo, "stock")[1] == "a shirt"
        tokyo.queue_delete("stock")
        eventually(lambda: "stock" not in said(managers["paris"], "routes"))
        with pytest.raises(pika.exceptions.UnroutableError):
            put(paris, "stock", "nowhere")


def test_other_protocols_put_there_too(managers: dict[str, Broker]) -> None:
    with Session(managers["tokyo"]) as tokyo:
        tokyo.queue_declare("texts", durable=True)
        client = Client(managers["paris"]).connect()
        client.send("/queue/texts@tokyo", "by STOMP", colour="red")
        client.close()
        properties, body = get(tokyo, "texts")
        assert (body, properties.headers["colour"]) == ("by STOMP", "red")
    with Session(managers["paris"]) as paris, pytest.raises(pika.exceptions.ChannelClosedByBroker):
        paris.queue_declare("texts@tokyo", passive=True)


def test_unknown_managers_and_queues(managers: dict[str, Broker]) -> None:
    with Session(managers["paris"]) as paris, Session(managers["london"]) as london:
        with pytest.raises(pika.exceptions.UnroutableError):
            put(paris, "orders@nowhere", "lost")
        put(paris, "missing@tokyo", "not delivered")
        properties, body = get(london, "link.undeliverable")
        assert body == "not delivered"
        assert properties.headers["x-death"][0]["queue"] == "link.tokyo"
        assert "1" in said(managers["london"], "links")


def test_a_link_that_leads_to_another_manager() -> None:
    """Nothing is sent to a stranger, who would take it for its own; it waits."""
    ports = dict(zip(("paris", "tokyo"), free_ports(2), strict=True))
    with ExitStack() as stack:
        brokers = {
            name: stack.enter_context(
                broker(
                    settings={
                        "ports.amqp": ports[name],
                        "ports.http": 0,
                        "manager.name": name,
                        "link": [{"to": "london", "address": f"localhost:{ports['tokyo']}"}]
                        if name == "paris"
                        else [],
                    }
                )
            )
            for name in ports
        }
        with Session(brokers["paris"]) as paris, Session(brokers["tokyo"]) as tokyo:
            tokyo.queue_declare("orders", durable=True)
            put(paris, "orders@london", "not for tokyo")
            eventually(lambda: "is the manager tokyo" in said(brokers["paris"], "links"))
            assert tokyo.queue_declare("orders", passive=True).method.message_count == 0
            waiting = paris.queue_declare("link.london", passive=True).method.message_count
            assert waiting in (0, 1)  # The link may have it in its hands.


def test_routes_that_go_round() -> None:
    """Two managers have each other as the way to a third: the message becomes a dead letter."""
    ports = free_ports(2)
    with ExitStack() as stack:
        made = []
        for name, other, own, theirs in (
            ("rome", "oslo", *ports),
            ("oslo", "rome", *reversed(ports)),
        ):
            settings = {
                "ports.amqp": own,
                "ports.http": 0,
                "manager.name": name,
                "link": [{"to": other, "address": f"localhost:{theirs}"}],
                "route": [{"manager": "lima", "via": other}],
            }
            made.append(stack.enter_context(broker(settings=settings)))
        with Session(made[0]) as rome, Session(made[1]) as oslo:
            eventually(lambda: all("connected" in said(each, "links") for each in made))
            put(rome, "orders@lima", "round and round")
            found: list[str] = []

            def is_given_up() -> bool:
                for channel in (rome, oslo):
                    method, properties, body = channel.basic_get("link.undeliverable", True)
                    if method is not None:
                        assert properties.headers["x-death"]
                        found.append(body.decode())
                return bool(found)

            eventually(is_given_up)
            assert found == ["round and round"]


def test_the_commands(managers: dict[str, Broker]) -> None:
    eventually(lambda: knows(managers["paris"], "tokyo"))
    lines = said(managers["paris"], "routes").splitlines()
    assert [line.split()[:4] for line in lines if "tokyo" in line] == [
        ["tokyo", "london", "2", "learned"]
    ]
    assert "connected" in said(managers["paris"], "links")


def test_links_are_added_and_removed_while_it_runs(tmp_path: Path) -> None:
    """Hub and spoke: Rome and Oslo do not know each other, and learn of each other by the hub."""
    ports = dict(zip(("rome", "hub", "oslo"), free_ports(3), strict=True))
    made = {
        name: broker(
            tmp_path / name,
            settings={"ports.amqp": port, "ports.http": 0, "manager.name": name},
        )
        for name, port in ports.items()
    }
    with ExitStack() as stack:
        for each in made.values():
            stack.enter_context(each)
        rome, hub = made["rome"], made["hub"]
        for one, other in (("rome", "hub"), ("hub", "rome"), ("hub", "oslo"), ("oslo", "hub")):
            added = said(made[one], "link", "add", other, f"localhost:{ports[other]}")
            assert added == f"added {other}\n"
        eventually(lambda: knows(rome, "oslo"))
        for each in (rome, hub):  # They are stored.
            each.kill()
            each.start()
        eventually(lambda: knows(rome, "oslo"))
        channel = stack.enter_context(Session(made["oslo"]))
        channel.queue_declare("orders", durable=True)
        with Session(rome) as putting:
            put(putting, "orders@oslo", "by the hub")
        assert get(channel, "orders")[1] == "by the hub"
        assert refused(rome, "link", "add", "rome", "localhost:1") == "rome is this manager itself"
        assert "is not like" in refused(rome, "link", "add", "nice", "nowhere")
        assert refused(rome, "link", "add", "a b", "localhost:1")
        assert refused(rome, "link", "remove", "nice") == "there is no link to nice"
        assert "connected" in said(rome, "link", "list")
        said(hub, "link", "remove", "oslo")
        eventually(lambda: not knows(rome, "oslo"))
        said(rome, "link", "remove", "hub")
        assert "hub" not in said(rome, "links")
        with Session(rome) as putting, pytest.raises(pika.exceptions.UnroutableError):
            put(putting, "orders@oslo", "nowhere")
        with broker(settings={"ports.http": 0}) as single:
            assert "manager.name" in refused(single, "link", "add", "hub", "localhost:1")


def test_a_configured_link_is_not_changed(managers: dict[str, Broker]) -> None:
    for command in (("add", "london", "localhost:1"), ("remove", "london")):
        assert "is configured" in refused(managers["paris"], "link", *command)


def _cross(made: dict[str, Broker], count: int, kills: int) -> list[str]:
    """Publish at Paris for Tokyo while London is killed and comes back; return what came."""
    with ExitStack() as stack:
        for each in made.values():
            stack.enter_context(each)
        eventually(lambda: knows(made["paris"], "tokyo"))
        paris = stack.enter_context(Session(made["paris"]))
        tokyo = stack.enter_context(Session(made["tokyo"]))
        tokyo.queue_declare("orders", durable=True)
        for number in range(count):
            if number % (count // kills) == count // kills // 2:
                made["london"].kill()
                made["london"].start()
            put(paris, "orders@tokyo", str(number))
        found = [get(tokyo, "orders")[1] for _ in range(count)]
        eventually(lambda: " 0 " in said(made["paris"], "links"))
        time.sleep(2)  # For what would come a second time.
        while (again := tokyo.basic_get("orders", auto_ack=True))[0] is not None:
            found.append(again[2].decode())
        return found


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
def test_each_comes_once_while_the_middle_is_killed() -> None:
    found = _cross(chain(announce=""), 1_000, 20)
    assert sorted(map(int, found)) == list(range(1_000))


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
def test_a_manager_that_only_routes_loses_nothing() -> None:
    found = _cross(chain(announce="", store=False), 300, 5)
    assert sorted(map(int, found)) == list(range(300))
