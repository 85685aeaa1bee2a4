"""One order's trace, from the shop by way of the broker to the worker, with OpenTelemetry.

The shop publishes over MQTT and puts the context of its span into a header; the worker consumes
over AMQP and goes on from there. The broker's own spans show what happened in between. All send to
one collector, which here is a few lines. Needs `pip install 'entrepot[otel]'`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pika
from opentelemetry import propagate
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from paho.mqtt import client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from entrepot.testing import Broker, broker
from examples.interaction.room import eventually

SPANS = 5  # The shop's, three of the broker's, the worker's.


@contextmanager
def collector() -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Yield an address that takes spans, and those that came, with who sent them."""
    spans: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            for each in ExportTraceServiceRequest.FromString(body).resource_spans:
                names = {fact.key: fact.value.string_value for fact in each.resource.attributes}
                for scope in each.scope_spans:
                    spans.extend((names["service.name"], span) for span in scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", spans
        server.shutdown()


def tracer(service: str, endpoint: str) -> Any:
    provider = TracerProvider(resource=Resource.create({"service.name": service}))
    exporter = OTLPSpanExporter(endpoint=f"{endpoint}/v1/traces")
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider.get_tracer(service)


def order(server: Broker, endpoint: str) -> None:
    """Publish over MQTT what was ordered, with the context of the shop's span."""
    client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
    client.connect(*server.mqtt_address)
    client.loop_start()
    with tracer("shop", endpoint).start_as_current_span("order placed"):
        context: dict[str, str] = {}
        propagate.inject(context)
        properties = Properties(PacketTypes.PUBLISH)
        properties.UserProperty = list(context.items())
        client.publish("shop/orders", b"a lamp", 1, properties=properties).wait_for_publish(20)
    client.disconnect()
    client.loop_stop()


def pack(channel: Any, endpoint: str) -> None:
    """Consume over AMQP, and go on with the trace."""
    _, properties, body = next(channel.consume("orders", auto_ack=True, inactivity_timeout=20))
    context = propagate.extract(properties.headers)
    with tracer("worker", endpoint).start_as_current_span(f"packed {body.decode()}", context):
        pass


def show(spans: list[tuple[str, Any]], parent: bytes = b"", depth: int = 0) -> None:
    below = [(service, span) for service, span in spans if span.parent_span_id == parent]
    for service, span in sorted(below, key=lambda each: (each[1].end_time_unix_nano, each[0])):
        print(f"{'  ' * depth}{span.name} ({service})")
        show(spans, span.span_id, depth + 1)


def main() -> None:
    os.environ.setdefault("OTEL_BSP_SCHEDULE_DELAY", "100")  # Of the broker, in ms.
    with (
        collector() as (endpoint, spans),
        broker(settings={"tracing.endpoint": endpoint}) as server,
    ):
        with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
            channel = connection.channel()
            channel.queue_declare("orders", durable=True)
            channel.queue_bind("orders", "amq.topic", "shop.orders")
            order(server, endpoint)
            pack(channel, endpoint)
        eventually(lambda: len(spans) == SPANS)
        print(len({span.trace_id for _, span in spans}), "trace:")
        show(spans)


if __name__ == "__main__":
    main()
