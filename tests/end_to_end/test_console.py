"""The console, driven in a real browser: what is shown, what the buttons do, and who may."""

import json
import time
from collections.abc import Callable, Iterator
from importlib.resources import files
from typing import Any
from urllib.parse import quote

import confluent_kafka
import pika
import pytest
from confluent_kafka import admin as admin_api
from paho.mqtt import client as paho

from entrepot.testing import Broker, broker
from tests.end_to_end.browsing import NEEDS_CHROMIUM, WAIT_S, Browser, chromium

pytestmark = [pytest.mark.slow, NEEDS_CHROMIUM]

NASTY = "<script>document.title='!'</script>\"'&amp; 🦆"
LONG = "n" * 255


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.http": 0, "topics.num_partitions": 2}) as started:
        yield started


@pytest.fixture(scope="module")
def visit() -> Iterator[Callable[..., Browser]]:
    with chromium() as started:
        yield started


@pytest.fixture(scope="module")
def page(server: Broker, visit: Callable[..., Browser]) -> Browser:
    page = visit(f"http://{server.http_address}")
    page.open()
    page.log_in("guest", "guest")
    page.problems()
    return page


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


PAGES = (
    ("", "Overview", "By protocol", "AMQP", "granted access", "messages ready"),
    ("queues", NASTY, LONG, "Declare a queue"),
    (f"queues/%2F/{quote(NASTY, '')}", NASTY, "Nobody consumes from it"),
    (f"queues/%2F/{LONG}", LONG, "amq.topic", NASTY),
    ("topics", "shown", "Create a topic"),
    ("topics/shown", "value", "key", "looked at"),
    ("topics/shown?tab=partitions", "First offset", "fine"),
    ("topics/shown?tab=groups", "Lag", "g"),
    ("topics/shown?tab=settings", "retention.ms", "default"),
    ("exchanges", "amq.topic", "amq.headers", "What leads where", "a/#"),
    ("exchanges/%2F/amq.topic", LONG, NASTY, "What leads where"),
    (f"route?exchange=amq.topic&key={quote(NASTY, '')}", LONG, "2 queues and topics would get it"),
    ("route?exchange=amq.topic&key=a.b", "The way", "listens", "1 subscription"),
    ("connections", "AMQP 0-9-1", "MQTT"),
    ("groups", "g", "Lag"),
    ("groups/g", "Consumer group", "shown", "Members", "Lag since"),
    ("sessions", NASTY, "connected"),
    (f"sessions/{quote(NASTY, '')}", "a/#", "QoS"),
    ("retained", "a/b", "4 B"),
    ("transactions", "Nothing is under way"),
    ("users", "guest", "administrator", "Access control lists"),
    ("storage", "shown", "the broker's own"),
    ("settings", "topics.num_partitions", "command line"),
    ("spark", "No query has told of itself"),
    ("cluster", "This broker has nothing to show there"),
)

WIDE = "document.documentElement.scrollWidth > innerWidth"
NAMELESS = (
    "[...document.querySelectorAll('button, a, input, select')].filter("
    "(each) => !(each.textContent.trim() || each.ariaLabel || each.labels?.length)).length"
)


@pytest.fixture
def things(server: Broker, channel: Any) -> Iterator[None]:
    """Something for every page: with names that are markup, or as long as names may be."""
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
    yield
    device.disconnect()
    device.loop_stop()
    consumer.close()


@pytest.mark.usefixtures("things")
def test_every_page_is_shown_without_an_error(page: Browser) -> None:
    for address, *texts in PAGES:
        page.open(address)
        page.wait_for(*texts)
        assert page.run("document.title").endswith("entrepot"), address
        assert page.problems() == [], address
        assert not page.run(WIDE), address
        assert page.run(NAMELESS) == 0, address
    page.search("shown")
    page.wait_for("Topic", "Produce")
    page.search("a/b")
    page.wait_for("1 retained message")
    page.press("a/b")
    page.wait_for("kept", "Close")
    page.press("Close")
    page.until("() => !document.querySelector('dialog')")
    page.search("num_partitions")
    page.wait_for("topics.num_partitions", "only those that were changed")
    assert page.problems() == []


@pytest.mark.usefixtures("things")
def test_every_page_fits_a_phone(page: Browser) -> None:
    page.resize(390, 844)
    try:
        for address, *_ in PAGES:
            page.open(address)
            page.until("() => !document.getElementById('main').inert")
            assert not page.run(WIDE), address
        page.run("document.getElementById('menu').click()")
        page.press("Exchanges")
        page.wait_for("amq.topic")
    finally:
        page.resize()


@pytest.mark.usefixtures("things")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page(
    server: Broker, visit: Callable[..., Browser], scheme: str
) -> None:
    """What a program can judge of what readers of screens need: names, roles, contrast."""
    axe = pytest.importorskip("axe_playwright_python", reason="pip install axe-playwright-python")
    script = (files(axe) / "axe.min.js").read_text("utf-8")
    page = visit(f"http://{server.http_address}", bypass_csp=True, color_scheme=scheme)
    found = {}

    def judge(where: str) -> None:
        page.run(script)
        result = page.run("axe.run(document, {resultTypes: ['violations']})")
        for each in result["violations"]:
            found[where, each["id"]] = [node["html"][:200] for node in each["nodes"][:3]]

    page.open()
    page.wait_for("Log in to entrepot")
    judge("login")
    page.log_in("guest", "guest")
    for address, *texts in PAGES:
        page.open(address)
        page.wait_for(*texts)
        judge(address)
    page.open("queues")
    page.press("Declare a queue")
    judge("a form")
    assert found == {}


def test_a_message_is_published_looked_at_and_taken(page: Browser, channel: Any) -> None:
    page.open("queues")
    page.press("Declare a queue")
    page.write("Name", "work")
    page.press("Declare")
    page.wait_for("work is declared")
    page.press("Publish")
    page.write("Body", '{"id": 1}')
    page.write("Headers", "tenant: a")
    page.press("Publish")
    page.wait_for("Published.")
    _, properties, body = channel.basic_get("work", auto_ack=True)
    assert (body, properties.headers) == (b'{"id": 1}', {"tenant": "a"})
    assert properties.delivery_mode == 2

    publish(channel, "work", b"one", b"\x00\xff", b"x" * 10_000_000)
    wait_until(lambda: depth(channel, "work") == 3)
    page.press("Peek")
    page.wait_for("one", "000000  00 ff", "9.5 MiB")  # Bytes as such, and of the long one a part.
    assert not page.has_button("Send all dead letters back")  # There are none.
    page.press("Take one")
    page.press("Cancel")
    assert depth(channel, "work") == 3
    page.press("Take one")
    page.press("Take")
    page.wait_for("1 message taken")
    assert depth(channel, "work") == 2
    page.press("Purge")
    page.press("Purge")
    page.wait_for("Purged.")
    assert depth(channel, "work") == 0
    page.open("queues?name=work")
    page.wait_for("1 queue")
    assert [row.split(" | ")[0] for row in page.rows()] == ["work"]
    assert page.problems() == []


def test_messages_are_moved_and_come_back(page: Browser, channel: Any) -> None:
    for name in ("here", "there"):
        channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    publish(channel, "here", b"one", b"two")
    page.open("queues/%2F/here")
    page.press("Move")
    page.write("To the queue", "there")
    page.press("Move")
    page.wait_for("2 messages moved to there")
    assert (depth(channel, "here"), depth(channel, "there")) == (0, 2)
    page.press("Rewind")
    page.write("To the offset", "0")
    page.wait_for("2 messages would be ready again")
    assert depth(channel, "here") == 0
    page.press("Rewind")
    page.wait_for("here is rewound")
    wait_until(lambda: depth(channel, "here") == 2)

    page.open("queues/%2F/there")
    page.press("Delete")
    page.write("Type there", "another")
    page.press("Delete")
    page.wait_for("That is another name.")
    page.write("Type there", "there")
    page.press("Delete")
    page.wait_for("there is deleted")
    assert page.problems() == []


def test_a_long_move_says_how_far_it_is(page: Browser, channel: Any) -> None:
    for name in ("far", "near"):
        channel.queue_declare(name, durable=True)
    publish(channel, "far", *([b"x"] * 5_001))
    wait_until(lambda: depth(channel, "far") == 5_001)
    page.open("queues/%2F/far")
    page.run(
        "window.told = []; new MutationObserver(() => {"
        "const shown = document.querySelector('dialog .preview')?.innerText;"
        "if (shown) told.push(shown); }).observe(document.body, {childList: true, subtree: true})"
    )
    page.press("Move")
    page.write("To the queue", "near")
    page.press("Move")
    page.wait_for("5,001 messages moved to near")
    assert depth(channel, "near") == 5_001
    told = page.run("[...new Set(told)]")
    assert [text.split(" are ")[0] for text in told] == [
        f"{count} of 5,001" for count in ("0", "2,000", "4,000")
    ]
    assert page.problems() == []


def test_a_dead_letter_goes_back(page: Browser, channel: Any) -> None:
    channel.queue_declare("dead", durable=True)
    letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("alive", durable=True, arguments=letters)
    channel.confirm_delivery()
    publish(channel, "alive", b"bad", b"worse", b"worst")
    for _ in range(3):
        method, _, _ = channel.basic_get("alive")
        channel.basic_reject(method.delivery_tag, requeue=False)
    wait_until(lambda: depth(channel, "dead") == 3)
    page.open("queues/%2F/dead")
    page.press("Peek")
    page.wait_for("dead letter: rejected", "Died in")
    page.press("Send back")
    page.wait_for("1 message sent back")
    assert (depth(channel, "dead"), depth(channel, "alive")) == (2, 1)
    page.press("Send all dead letters back")
    page.wait_for("Each goes to the queue in which it died")
    page.press("Send back")
    page.wait_for("2 messages sent back")
    assert (depth(channel, "dead"), depth(channel, "alive")) == (0, 3)
    assert page.problems() == []


def test_more_is_peeked_into(page: Browser, channel: Any) -> None:
    channel.queue_declare("long", durable=True)
    channel.confirm_delivery()
    publish(channel, "long", *(f"message {number}".encode() for number in range(130)))
    page.open("queues/%2F/long")
    page.press("Peek")
    page.wait_for("message 19")
    assert "message 20" not in page.text
    page.press("Show more of 110 behind these")
    page.wait_for("message 99")
    page.press("Show more of 30 behind these")
    page.wait_for("message 129")
    assert not page.run("document.body.innerText.includes('Show more')")
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
    assert page.problems() == []


def test_a_topic_is_altered(server: Broker, page: Browser) -> None:
    page.open("topics")
    page.press("Create a topic")
    page.write("Name", "altered")
    page.press("Create")
    page.wait_for("altered is created")
    page.open("topics/altered?tab=settings")
    page.wait_for("retention.ms", "7 d", "no limit")
    row = page.page.locator("tr").filter(has_text="retention.ms").first
    row.get_by_role("button", name="Change").click()
    page.write("Value", "soon")
    page.press("Set")
    page.wait_for("retention.ms")
    page.until("() => document.querySelector('dialog .problem').innerText !== ''")
    page.write("Value", "7200000")
    page.press("Set")
    page.wait_for("retention.ms is set", "2 h", "this topic")
    page.press("Add partitions")
    page.write("Partitions", "3")
    page.press("Add")
    page.wait_for("altered has 3 partitions")
    admin = admin_api.AdminClient({"bootstrap.servers": server.bootstrap})
    assert len(admin.list_topics("altered", timeout=WAIT_S).topics["altered"].partitions) == 3
    page.problems()  # The value that was refused.


def test_an_open_transaction_is_aborted(server: Broker, page: Browser) -> None:
    settings = {"bootstrap.servers": server.bootstrap, "transactional.id": "left-open"}
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(WAIT_S)
    producer.begin_transaction()
    producer.produce("read", b"never")
    assert producer.flush(WAIT_S) == 0
    page.open("transactions")
    page.wait_for("left-open", "open")
    page.press("Abort")
    page.wait_for("It holds back: read")
    page.press("Abort")
    page.wait_for("The transaction is aborted", "Nothing is under way")
    with pytest.raises(confluent_kafka.KafkaException, match=r"FENCED|fenced"):
        producer.commit_transaction(WAIT_S)
    assert page.problems() == []


def test_a_circle_of_exchanges_is_drawn(page: Browser, channel: Any) -> None:
    for name in ("one", "two", "three"):
        channel.exchange_declare(name, "topic")
    for source, destination in (("one", "two"), ("two", "three"), ("three", "one"), ("one", "one")):
        channel.exchange_bind(destination, source, f"{source}.to.{destination}")
    page.open("exchanges/%2F/two")
    page.wait_for("What leads where")
    page.until("() => document.querySelectorAll('.graph .edge').length === 4")
    places = "[...document.querySelectorAll('.graph rect')].map((each) => each.x.baseVal.value)"
    assert len(set(page.run(places))) == 3
    page.open("route?exchange=one&key=one.to.two")
    page.wait_for("The way", "Nowhere")
    for name in ("one", "two", "three"):
        channel.exchange_delete(name)
    assert page.problems() == []


def test_a_dialog_goes_with_its_page(page: Browser) -> None:
    page.open("queues")
    page.wait_for("Declare a queue")
    page.open("topics")
    page.press("Create a topic")
    page.page.go_back()
    page.until("() => !document.querySelector('dialog')")
    assert page.problems() == []


def test_a_group_is_reset(server: Broker, page: Browser) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    producer.produce("read", b"value", partition=0)
    assert producer.flush(WAIT_S) == 0
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "readers",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.subscribe(["read"])
    assert consumer.poll(WAIT_S) is not None
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
    page.open(f"connections?name={server.endpoints['amqp'][1]}")
    page.wait_for("1 connection")
    page.press("Close")
    page.press("Close it")
    page.wait_for("The connection is closed", "Nothing has that name")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
        channel.connection.process_data_events(WAIT_S)
    assert page.problems() == []


def test_a_connection_of_kafka_is_closed(server: Broker, page: Browser) -> None:
    settings = {"bootstrap.servers": server.bootstrap, "client.id": "closed <soon>"}
    producer = confluent_kafka.Producer(settings)
    producer.produce("read", b"before")
    assert producer.flush(WAIT_S) == 0
    page.open("connections?name=closed")
    page.wait_for("Kafka", "closed <soon>")
    page.run("document.querySelector('td.name a').click()")
    page.wait_for("rdkafka", "ANONYMOUS", "It has no channels")
    page.press("Close")
    page.press("Close it")
    page.wait_for("The connection is closed")
    producer.produce("read", b"after")  # It connects again.
    assert producer.flush(WAIT_S) == 0
    assert page.problems() == []


def test_it_says_that_the_broker_is_away_and_comes_back(server: Broker, page: Browser) -> None:
    page.open()
    page.wait_for("By protocol", "AMQP")
    server.kill()
    page.wait_for("The broker does not answer. This page goes on by itself")
    server.start()
    page.wait_for("Your login has ended")  # Logins end with the process.
    page.log_in("guest", "guest")
    page.wait_for("What just happened", "topics, started in", "0/s")
    assert "does not answer" not in page.text
    page.problems()  # That it was away is no mistake of the page's.
