"""The lectures' filters, live: from two processes and over several protocols."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import paho.mqtt.client as paho
import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import entrepot
from entrepot.client.errors import ClientError
from entrepot.testing import Broker, broker
from tests.end_to_end.test_client import connect, eventually
from tests.end_to_end.test_stomp import Client as StompClient

PUBLISH = """
import entrepot, json, sys
with entrepot.Client(sys.argv[1], sys.argv[2]) as client:
    for subject, headers in json.load(sys.stdin):
        client.publish(subject, headers, headers=headers)
"""
PUBLISH_TYPED = """
import entrepot, json, sys
with entrepot.Client(sys.argv[1], sys.argv[2]) as client:
    for kind, fields in json.load(sys.stdin):
        client.publish_event(kind, fields)
"""
TELCO = '{(company, =, "Telco"), (price, <, 100)}'


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture
def client(server: Broker) -> Iterator[entrepot.Client]:
    with connect(server) as made:
        yield made


def elsewhere(server: Broker, program: str, events: list[Any]) -> None:
    """Publish from another process."""
    host, port = server.endpoints["amqp"]
    command = [sys.executable, "-c", program, f"{host}:{port}", server.bootstrap]
    subprocess.run(command, input=json.dumps(events).encode(), check=True)


@contextmanager
def mqtt(server: Broker) -> Iterator[paho.Client]:
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.connect(*server.mqtt_address)
    client.loop_start()
    yield client
    client.disconnect()
    client.loop_stop()


def publish_mqtt(client: paho.Client, topic: str, headers: dict[str, str]) -> None:
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = [*headers.items()]
    payload = json.dumps(headers)
    client.publish(topic, payload, qos=1, properties=properties).wait_for_publish(20)


def test_telco_120_and_90(client: entrepot.Client, server: Broker) -> None:
    """m2 at 90 is accepted and m1 at 120 refused, whoever publishes and whoever listens."""
    found: list[Any] = []
    handle = client.subscribe("stocks.#", lambda _, event: found.append(event), where=TELCO)
    stomp = StompClient(server).connect()
    stomp.subscribe(
        "/topic/stocks.#",
        selector="convert_string_expressions:company = 'Telco' AND price < 100",
    )
    m1, m2 = {"company": "Telco", "price": 120}, {"company": "Telco", "price": 90}
    other = {"company": "Other", "price": 1}
    elsewhere(server, PUBLISH, [[f"stocks.{n}", each] for n, each in enumerate((m1, other, m2))])
    eventually(lambda: len(found) == 1)
    with mqtt(server) as device:
        for each in (m1, other, m2):
            headers = {name: str(value) for name, value in each.items()}
            publish_mqtt(device, "stocks/device", headers)
    eventually(lambda: len(found) == 2)
    assert [event.subject for event in found] == ["stocks.2", "stocks.device"]
    assert [json.loads(stomp.next().body)["price"] for _ in range(2)] == [90, "90"]
    handle.unsubscribe()
    stomp.close()


def test_soccer_and_italy(client: entrepot.Client, server: Broker) -> None:
    found: list[Any] = []
    client.subscribe(
        "sport.soccer.teams",
        lambda _, event: found.append(event.headers["team"]),
        where={"country": "Italy"},
    )
    events = [
        ["sport.soccer.teams", {"team": "Milan", "country": "Italy"}],
        ["sport.soccer.teams", {"team": "Ajax", "country": "Netherlands"}],
        ["sport.tennis.players", {"team": "none", "country": "Italy"}],
        ["sport.soccer.teams", {"team": "Roma", "country": "Italy"}],
    ]
    elsewhere(server, PUBLISH, events)
    with mqtt(server) as device:
        publish_mqtt(device, "sport/soccer/teams", {"team": "Inter", "country": "Italy"})
    eventually(lambda: len(found) == 3)
    assert found == ["Milan", "Roma", "Inter"]


def test_types_and_their_subtypes(client: entrepot.Client, server: Broker) -> None:
    client.declare_type("Quote", {"company": "text"})
    client.declare_type("StockQuote", {"price": "number"}, extends="Quote")
    client.declare_type("TechQuote", {"sector": "text"}, extends="StockQuote")
    client.declare_type("BondQuote", {"rate": "number"}, extends="Quote")
    found: list[Any] = []
    cheap: list[Any] = []
    client.subscribe_type("StockQuote", lambda _, event: found.append((event.type, event.value)))
    client.subscribe_type(
        "StockQuote", lambda _, event: cheap.append(event.type), where=[("price", "<", 100)]
    )
    heard: list[str] = []
    with mqtt(server) as device:
        device.on_message = lambda *arguments: heard.append(arguments[2].topic)
        device.subscribe("types/Quote/StockQuote/#", qos=1)
        time.sleep(0.3)
        events = [
            ["Quote", {"company": "a"}],
            ["StockQuote", {"company": "b", "price": 120}],
            ["BondQuote", {"company": "c", "rate": 3}],
            ["TechQuote", {"company": "d", "price": 90, "sector": "chips"}],
        ]
        elsewhere(server, PUBLISH_TYPED, events)
        eventually(lambda: (len(found), len(cheap), len(heard)) == (2, 1, 2))
    assert [kind for kind, _ in found] == ["StockQuote", "TechQuote"]
    assert found[1][1] == {"company": "d", "price": 90, "sector": "chips"}
    assert cheap == ["TechQuote"]
    assert heard == ["types/Quote/StockQuote", "types/Quote/StockQuote/TechQuote"]


def test_a_subscription_to_a_type_is_checked(client: entrepot.Client, server: Broker) -> None:
    client.declare_type("Alarm", {"level": "number", "place": "text", "loud": "boolean"})
    client.declare_type("Alarm", {"level": "number", "place": "text", "loud": "boolean"})
    with connect(server) as other:
        for wrong, said in (
            (lambda: other.subscribe_type("Alert", print), "not declared"),
            (lambda: other.subscribe_type("Alarm", print, where={"lvl": 1}), "no field 'lvl'"),
            (
                lambda: other.subscribe_type("Alarm", print, where=("level", ">", "high")),
                "is a number",
            ),
            (lambda: other.subscribe_type("Alarm", print, where={"level": True}), "is a number"),
            (lambda: other.subscribe_type("Alarm", print, where={"colour": ...}), "no field"),
            (lambda: other.publish_event("Alarm", {"level": 1}), "needs place, loud"),
            (lambda: other.declare_type("Alarm", {"level": "text"}), "declared otherwise"),
            (lambda: other.declare_type("B", {"level": "text"}, extends="Alarm"), "in type Alarm"),
            (lambda: other.declare_type("B", {}, extends="Nothing"), "not declared"),
            (lambda: other.declare_type("B", {"x": "date"}), "none of text"),
        ):
            with pytest.raises(ClientError, match=said):
                wrong()
