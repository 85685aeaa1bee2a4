"""The console, driven in a real browser: what is shown, what the buttons do, and who may."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pika
import pytest
from paho.mqtt import client as paho

from entrepot.testing import Broker, broker
from tests.end_to_end.browsing import NEEDS_CHROMIUM, WAIT_S, Browser, browser
from tests.end_to_end.secured import command

pytestmark = [pytest.mark.slow, NEEDS_CHROMIUM]

NASTY = "<script>document.title='!'</script>\"'&amp; 🦆"
LONG = "n" * 255


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.http": 0, "topics.num_partitions": 2}) as started:
        yield started


@pytest.fixture(scope="module")
def page(server: Broker) -> Iterator[Browser]:
    with browser(f"http://{server.http_address}") as started:
        started.open()
        started.log_in("guest", "guest")
        started.problems()
        yield started


@pytest.fixture
def channel(server: Broker) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
    yield connection.channel()
    if connection.is_open:
        connection.close()


def publish(channel: Any, queue: str, *bodies: bytes) -> None:
    for body in bodies:
        channel.basic_publish("", queue, body, pika.BasicProperties(delivery_mode=2))


def depth(channel: Any, queue: str) -> int:
    count: int = channel.queue_declare(queue, passive=True).method.message_count
    return count


def wait_until(is_so: Any) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_every_page_is_shown_without_an_error(
    server: Broker, page: Browser, channel: Any, tmp_path: Path
) -> None:
    channel.queue_declare(NASTY, durable=True)
    channel.queue_declare(LONG, durable=True)
    channel.queue_bind(LONG, "amq.topic", NASTY)
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    producer.produce("shown", b"value", b"key")
    assert producer.flush(WAIT_S) == 0
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": server.bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["shown"])
    assert consumer.poll(WAIT_S) is not None
    consumer.commit(asynchronous=False)
    device = paho.Client(paho.CallbackAPIVersion.VERSION2, client_id=NASTY)
    device.connect(*server.mqtt_address)
    device.loop_start()
    device.publish("a/b", b"kept", qos=1, retain=True).wait_for_publish(WAIT_S)
    device.subscribe("a/#", qos=1)

    def quoted(text: str) -> str:
        found: str = page.run("return encodeURIComponent(arguments[0])", text)
        return found

    for address, *texts in (
        ("", "Overview", "By protocol", "AMQP", "granted access", "messages ready"),
        ("queues", NASTY, LONG, "Declare a queue"),
        (f"queues/%2F/{quoted(NASTY)}", NASTY, "Nobody consumes from it"),
        (f"queues/%2F/{LONG}", LONG, "amq.topic", NASTY),
        ("topics", "shown", "Create a topic"),
        ("topics/shown", "value", "key", "1 record"),
        ("topics/shown?tab=partitions", "First offset", "fine"),
        ("topics/shown?tab=groups", "Lag", "g"),
        ("topics/shown?tab=settings", "retention.ms", "default"),
        ("exchanges", "amq.topic", "amq.headers"),
        ("exchanges/%2F/amq.topic", LONG, NASTY),
        (f"route?exchange=amq.topic&key={quoted(NASTY)}", LONG, "2 queues and topics would get it"),
        ("connections", "AMQP 0-9-1", "MQTT"),
        ("groups", "g", "Lag"),
        ("groups/g", "Consumer group", "shown", "Members"),
        ("sessions", NASTY, "connected"),
        (f"sessions/{quoted(NASTY)}", "a/#", "QoS"),
        ("retained", "a/b", "4 B"),
        ("transactions", "No transaction is under way"),
        ("users", "guest", "administrator", "Access control lists"),
        ("storage", "shown", "the broker's own"),
        ("settings", "topics.num_partitions", "file or command line"),
    ):
        page.open(address)
        page.wait_for(*texts)
        assert page.run("return document.title").endswith("entrepot"), address
        assert page.problems() == [], address
        # Nothing is wider than the window, and everything one can press has a name.
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), address
        nameless = "return [...document.querySelectorAll('button, a, input, select')].filter("
        nameless += "(e) => !(e.innerText.trim() || e.ariaLabel || e.labels?.length)).length"
        assert page.run(nameless) == 0, address
    page.driver.set_window_size(390, 844)
    for address in ("", "queues", "topics/shown", "settings"):
        page.open(address)
        page.until(lambda: page.run("return !document.getElementById('main').inert"))
        assert page.run("return document.documentElement.scrollWidth <= innerWidth"), address
    page.run("document.getElementById('menu').click()")
    page.press("Exchanges")
    page.wait_for("amq.topic")
    page.driver.set_window_size(1280, 900)
    page.search("shown")
    page.wait_for("Topic", "Produce")
    device.disconnect()
    device.loop_stop()
    consumer.close()


def test_a_queue(server: Broker, page: Browser, channel: Any) -> None:
    page.open("queues")
    page.press("Declare a queue")
    page.write("Name", "work")
    page.write("Queue for dead letters", "dead")
    page.press("Declare")
    page.wait_for("work is declared")
    channel.queue_declare("dead", durable=True)
    channel.queue_declare("other", durable=True)

    page.press("Publish")
    page.write("Body", '{"id": 1}')
    page.write("Headers", "tenant: a")
    page.press("Publish")
    page.wait_for("Published.")
    method, properties, body = channel.basic_get("work")
    assert (body, properties.headers, properties.delivery_mode) == (
        b'{"id": 1}',
        {"tenant": "a"},
        2,
    )
    channel.basic_reject(method.delivery_tag, requeue=False)
    wait_until(lambda: depth(channel, "dead") == 1)

    publish(channel, "work", b"one", b"\x00\xff", b"x" * 10_000_000)
    wait_until(lambda: depth(channel, "work") == 3)
    page.press("Peek")
    page.wait_for("one", "000000  00 ff", "9.5 MiB")  # Bytes as such, and of the long one a part.
    page.press("Take one")
    page.wait_for("1 message taken")
    assert depth(channel, "work") == 2

    page.press("Move")
    page.write("To the queue", "other")
    page.press("Move")
    page.wait_for("2 messages moved to other")
    assert (depth(channel, "work"), depth(channel, "other")) == (0, 2)
    page.press("Rewind")
    page.write("To the offset", "0")
    page.press("Rewind")
    page.wait_for("work is rewound")
    wait_until(lambda: depth(channel, "work") == 4)
    page.press("Purge")
    page.press("Purge")
    page.wait_for("Purged.")
    assert depth(channel, "work") == 0

    page.open("queues/%2F/dead")
    page.press("Peek")
    page.wait_for("dead letter: rejected", "Died in")
    page.press("Send back")
    page.wait_for("1 message sent back")
    assert (depth(channel, "dead"), depth(channel, "work")) == (0, 1)

    page.open("queues/%2F/other")
    page.press("Delete")
    page.write("Type other", "another")
    page.press("Delete")
    page.wait_for("That is another name.")
    page.write("Type other", "other")
    page.press("Delete")
    page.wait_for("other is deleted")
    page.open("queues?name=work")
    page.wait_for("1 queue")
    assert [row.split(" | ")[0] for row in page.rows()] == ["work"]
    assert page.problems() == []


def test_a_topic(server: Broker, page: Browser) -> None:
    page.open("topics")
    page.press("Create a topic")
    page.write("Name", "clicks")
    page.press("Create")
    page.wait_for("clicks is created")
    page.press("Produce")
    page.write("Key", "user-1")
    page.write("Value", '{"page": "/start"}')
    page.write("Headers", "trace: abc")
    page.press("Produce")
    page.wait_for("Record 0:0 is on disk", "user-1", '"page": "/start"')
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    for number in range(300):
        producer.produce("clicks", json.dumps({"n": number}), f"user-{number % 10}", partition=0)
    producer.produce("clicks", bytes(range(256)), b"\x00\xff", partition=0)
    assert producer.flush(WAIT_S) == 0

    page.open("topics/clicks?from=first")
    page.wait_for("50 records, 50 looked at")
    page.press("Go on from here")
    page.wait_for("0:99")
    page.open("topics/clicks?text=%22n%22%3A%20299")
    page.wait_for("1 record, 302 looked at", '"n": 299')
    page.open("topics/clicks?key=user-7&from=first")
    page.wait_for("30 records")
    page.open("topics/clicks?from=offset&place=301")
    page.wait_for("1 record", "00 ff", "000010  10 11 12")
    page.open("topics/clicks?from=time&place=2001-01-01T00:00:00")
    page.wait_for("50 records")

    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["clicks"])
    assert consumer.consume(100, WAIT_S)
    consumer.commit(asynchronous=False)
    consumer.close()
    page.open("groups/readers")
    page.press("Reset")
    page.wait_for("This is what would change", "Read again")
    page.press("Reset")
    page.wait_for("1 partition reset")
    assert page.rows()[0].split(" | ")[2] == "0"
    page.press("Delete")
    page.write("Type readers", "readers")
    page.press("Delete")
    page.wait_for("readers is deleted")
    assert page.problems() == []


def test_a_connection_is_closed(server: Broker, page: Browser, channel: Any) -> None:
    page.open("connections")
    page.wait_for("1 connection")
    page.press("Close")
    page.press("Close it")
    page.wait_for("The connection is closed", "Nobody is connected")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        channel.connection.process_data_events(WAIT_S)
    assert page.problems() == []


def test_it_says_that_the_broker_is_away_and_comes_back(server: Broker, page: Browser) -> None:
    page.open("queues")
    page.wait_for("Declare a queue")
    server.kill()
    page.wait_for("The broker does not answer. This page goes on by itself")
    server.start()
    page.wait_for("Your login has ended")  # Logins end with the process.
    page.log_in("guest", "guest")
    page.wait_for("Declare a queue")
    assert "does not answer" not in page.text
    page.problems()  # That it was away is no mistake of the page's.


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Broker]:
    """A broker that asks who its clients are. ROOT does everything, MAX may look."""
    data = tmp_path / "data"
    for name in ("root", "max", "ann"):
        arguments = ("add", name, "--data-dir", str(data), "--password-stdin")
        command("users", *arguments, stdin=f"{name}'s\n")
    settings = {
        "ports.http": 0,
        "security.authentication": "sasl",
        "security.authorization": True,
        "security.super_users": ["User:root"],
    }
    with broker(data, settings=settings) as started:
        yield started


def test_roles_and_logins(secured: Broker) -> None:
    from confluent_kafka import admin as admin_api

    admin = admin_api.AdminClient(
        {
            "bootstrap.servers": secured.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": "root",
            "sasl.password": "root's",
        }
    )
    binding = admin_api.AclBinding(
        admin_api.ResourceType.BROKER,
        "kafka-cluster",
        admin_api.ResourcePatternType.LITERAL,
        "User:max",
        "*",
        admin_api.AclOperation.DESCRIBE,
        admin_api.AclPermissionType.ALLOW,
    )
    for made in admin.create_acls([binding]).values():
        made.result(WAIT_S)
    with browser(f"http://{secured.http_address}") as page:
        page.open("queues")
        page.wait_for("Log in to entrepot")
        page.write("User", "root")
        page.write("Password", "wrong")
        page.press("Log in")
        page.wait_for("This user and password are not known here.")
        page.write("Password", "root's")
        page.press("Log in")
        page.press("Declare a queue")
        page.write("Name", "secret")
        page.press("Declare")
        page.wait_for("secret is declared")
        page.press("Log out")

        # Who monitors sees all of it, and has no button that changes anything.
        page.log_in("max", "max's")
        page.open("queues/%2F/secret")
        page.wait_for("Ready", "Your user may not read this queue")
        assert not any(map(page.has_button, ("Publish", "Purge", "Delete", "Peek", "Move")))
        page.open("")
        page.wait_for("By protocol", "What just happened", "monitor")
        assert "Users and rights" not in page.text
        page.problems()
        refused = page.run(
            "const {me} = await import('/console/api.js');"
            "const calls = [['PUT', '/api/queues/%2F/mine', {}],"
            " ['DELETE', '/api/queues/%2F/secret'],"
            " ['DELETE', '/api/queues/%2F/secret/contents'],"
            " ['POST', '/api/queues/%2F/secret/get',"
            "  {count: 1, ackmode: 'peek', encoding: 'auto'}],"
            " ['POST', '/api/console/queues/%2F/secret/send-back', {}],"
            " ['PUT', '/api/console/topics/mine', {}], ['GET', '/api/users']];"
            "return await Promise.all(calls.map(async ([method, path, body]) =>"
            " (await fetch(path, {method, headers: {'X-CSRF-Token': me.token},"
            "  body: body && JSON.stringify(body)})).status));"
        )
        assert refused == [403] * 7
        page.problems()

        # Whose password is changed has to log in again, where they are.
        changed = page.run(
            "return fetch('/api/queues', {method: 'PUT'}).then((answer) => answer.status)"
        )
        assert changed == 403  # A cookie alone changes nothing.
        page.press("Log out")
        page.log_in("root", "root's")
        page.open("users")
        page.wait_for("Add a user", "max")
        command_status = page.run(
            "const {me} = await import('/console/api.js');"
            "return (await fetch('/api/users/root', {method: 'PUT',"
            " headers: {'X-CSRF-Token': me.token},"
            " body: JSON.stringify({password: 'new'})})).status"
        )
        assert command_status == 204
        page.press("Queues")
        page.wait_for("Your login has ended")
        page.log_in("root", "new")
        page.wait_for("Declare a queue", "secret")
