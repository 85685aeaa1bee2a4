"""Spans: what the broker did with a message, below the span of whoever published it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from confluent_kafka import Producer

from entrepot.testing import Broker, broker
from tests.end_to_end.mqtt_peers import Client

pytest.importorskip("opentelemetry.proto", reason="the extra otel is not installed")
from tests.end_to_end.collector import WAIT_S, Collector

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
CONTEXT = {"traceparent": f"00-{TRACE}-{PARENT}-01", "tracestate": "congo=t61rcWkgMzE"}
UNSAMPLED = {"traceparent": f"00-{TRACE}-{PARENT}-00"}
BROKEN = {"traceparent": "00-zz"}


@pytest.fixture
def collector() -> Iterator[Collector]:
    started = Collector()
    yield started
    started.stop()


@pytest.fixture
def server(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")  # Ms; the library's own is 5,000.
    settings = {"tracing.endpoint": collector.endpoint, "tracing.service": "depot"}
    with broker(settings=settings) as started:
        yield started


def named(spans: list[Any], name: str) -> list[Any]:
    return [span for span in spans if span.name == name]


def test_from_a_device_to_a_worker(server: Broker, collector: Collector) -> None:
    """Published over MQTT, consumed over AMQP: one trace."""
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("work", durable=True)
        channel.queue_bind("work", "amq.topic", "site.#")
        with Client(server.mqtt_address) as device:
            for properties in (CONTEXT, UNSAMPLED, BROKEN, {}):
                device.publish("site/1", b"hot", 1, UserProperty=list(properties.items()))
        _, properties, _ = next(channel.consume("work", inactivity_timeout=WAIT_S, auto_ack=True))
        assert properties.headers["traceparent"] == CONTEXT["traceparent"]
    collector.wait_for(lambda spans: bool(named(spans, "deliver work")))
    collector.wait_for(lambda spans: bool(named(spans, "publish site.1")))
    spans = collector.spans
    assert {span.trace_id.hex() for span in spans} == {TRACE}
    (published,), (delivered,) = named(spans, "publish site.1"), named(spans, "deliver work")
    (routed,) = named(spans, "route")
    assert published.parent_span_id.hex() == delivered.parent_span_id.hex() == PARENT
    assert routed.parent_span_id == published.span_id
    assert published.trace_state == CONTEXT["tracestate"]
    for span in spans:
        assert span.start_time_unix_nano <= span.end_time_unix_nano


def test_a_producer_of_kafka(server: Broker, collector: Collector) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for properties in (CONTEXT, UNSAMPLED, {}):
        producer.produce("orders", b"x", headers=list(properties.items()))
    assert producer.flush(WAIT_S) == 0
    collector.wait_for(lambda spans: bool(named(spans, "publish orders")))
    (span,) = named(collector.spans, "publish orders")
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)


def test_what_is_refused_and_what_nobody_gets(server: Broker, collector: Collector) -> None:
    properties = pika.BasicProperties(headers=CONTEXT)
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
        channel.queue_declare("full", arguments=arguments)
        channel.confirm_delivery()
        channel.basic_publish("", "full", b"x", properties)
        with pytest.raises(pika.exceptions.NackError):
            channel.basic_publish("", "full", b"x", properties)
        channel.basic_publish("", "nowhere", b"x", properties)
    collector.wait_for(lambda spans: len(named(spans, "publish full")) == 2)
    failed = [span for span in named(collector.spans, "publish full") if span.status.code == 2]
    assert len(failed) == 1
    collector.wait_for(lambda spans: len(named(spans, "route")) == 3)
    unroutable = [
        span
        for span in named(collector.spans, "route")
        if any(each.key == "entrepot.unroutable" for each in span.attributes)
    ]
    assert len(unroutable) == 1


def test_a_receiver_that_asks(server: Broker, collector: Collector) -> None:
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("asked")
        channel.basic_publish("", "asked", b"x", pika.BasicProperties(headers=CONTEXT))
        method, _, _ = channel.basic_get("asked", auto_ack=True)
        assert method is not None
    collector.wait_for(lambda spans: bool(named(spans, "deliver asked")))


def test_nobody_waits_for_a_collector_that_is_away() -> None:
    with (
        broker(settings={"tracing.endpoint": "http://127.0.0.1:9"}) as server,
        pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection,
    ):
        channel = connection.channel()
        channel.queue_declare("work")
        channel.confirm_delivery()
        for _ in range(20):
            channel.basic_publish("", "work", b"x", pika.BasicProperties(headers=CONTEXT))


def test_nothing_is_loaded_without_an_endpoint() -> None:
    code = (
        "import sys, entrepot.server, entrepot.broker.tracing;"
        "print([each for each in sys.modules if 'telemetry' in each or 'tracing' in each])"
    )
    found = subprocess.check_output([sys.executable, "-c", code])
    assert found == b"['entrepot.broker.tracing']\n"
