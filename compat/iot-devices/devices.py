"""The device SDKs of AWS IoT Core and Azure IoT Hub against a broker: PASS or FAIL for each check.

python devices.py HOST:PORT TLS-PORT CERTIFICATE, or `--list`. Azure's connects to 8883 only.
"""

from __future__ import annotations

import base64
import queue
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import paho.mqtt.client as paho
from awscrt import io, mqtt, mqtt5
from azure.iot.device import IoTHubDeviceClient, Message

WAIT_S = 30.0
DEVICE = "thermometer"


def aws_3(address: str, tls_port: int, certificate: str) -> None:
    """AWS IoT Core's SDK, MQTT 3.1.1 under TLS: publish, subscribe, a session that resumes"""
    client = mqtt.Client(tls_ctx=_tls(certificate))

    def connect(name: str) -> Any:
        made = mqtt.Connection(
            client=client,
            host_name="localhost",
            port=tls_port,
            client_id=name,
            clean_session=False,
        )
        return made, made.connect().result(WAIT_S)

    device, told = connect("aws-device")
    assert told["session_present"] is False
    subscribed, _ = device.subscribe("fleet/7/commands", mqtt.QoS.AT_LEAST_ONCE, lambda **_: None)
    subscribed.result(WAIT_S)
    device.disconnect().result(WAIT_S)
    owner, _ = connect("aws-owner")
    for number in range(10):  # While the device is away.
        sent, _ = owner.publish("fleet/7/commands", str(number), mqtt.QoS.AT_LEAST_ONCE)
        sent.result(WAIT_S)
    came: queue.Queue[bytes] = queue.Queue()
    device = mqtt.Connection(
        client=client,
        host_name="localhost",
        port=tls_port,
        client_id="aws-device",
        clean_session=False,
    )
    device.on_message(lambda topic, payload, **_: came.put(payload))
    assert device.connect().result(WAIT_S)["session_present"] is True
    assert [came.get(timeout=WAIT_S) for _ in range(10)] == [b"%d" % each for each in range(10)]
    for each in (device, owner):
        each.disconnect().result(WAIT_S)


def aws_5(address: str, tls_port: int, certificate: str) -> None:
    """AWS IoT Core's SDK, MQTT 5: properties, and a will"""
    host, _, port = address.rpartition(":")
    came: queue.Queue[Any] = queue.Queue()

    def start(name: str, **more: Any) -> Any:
        up: Future[None] = Future()
        options = mqtt5.ClientOptions(
            host_name=host,
            port=int(port),
            connect_options=mqtt5.ConnectPacket(client_id=name, **more),
            on_publish_callback_fn=lambda data: came.put(data.publish_packet),
            on_lifecycle_event_connection_success_fn=lambda _: up.set_result(None),
        )
        made = mqtt5.Client(options)
        made.start()
        up.result(WAIT_S)
        return made

    owner = start("aws-5-owner")
    wanted = mqtt5.Subscription(topic_filter="fleet/#", qos=mqtt5.QoS.AT_LEAST_ONCE)
    owner.subscribe(mqtt5.SubscribePacket(subscriptions=[wanted])).result(WAIT_S)
    will = mqtt5.PublishPacket(topic="fleet/8/gone", payload="gone", qos=mqtt5.QoS.AT_LEAST_ONCE)
    device = start("aws-5-device", will=will)
    device.publish(
        mqtt5.PublishPacket(
            topic="fleet/8/heat",
            payload="21.5",
            qos=mqtt5.QoS.AT_LEAST_ONCE,
            content_type="text/plain",
            user_properties=[mqtt5.UserProperty(name="colour", value="blue")],
        )
    ).result(WAIT_S)
    found = came.get(timeout=WAIT_S)
    assert (found.topic, found.payload, found.content_type) == (
        "fleet/8/heat",
        b"21.5",
        "text/plain",
    )
    assert [(each.name, each.value) for each in found.user_properties] == [("colour", "blue")]
    thief = paho.Client("aws-5-device")  # Takes the device's session: its connection ends.
    thief.connect(host, int(port))
    thief.loop_start()
    found = came.get(timeout=WAIT_S)
    assert (found.topic, found.payload) == ("fleet/8/gone", b"gone")
    thief.disconnect()
    thief.loop_stop()
    for each in (device, owner):
        each.stop()


def azure(address: str, tls_port: int, certificate: str) -> None:
    """Azure IoT Hub's SDK: telemetry to the cloud with properties, and messages to the device"""
    host, _, port = address.rpartition(":")
    telemetry: queue.Queue[Any] = queue.Queue()
    is_subscribed = threading.Event()
    cloud = paho.Client("cloud")
    cloud.on_message = lambda client, data, message: telemetry.put(message)
    cloud.on_subscribe = lambda *_: is_subscribed.set()
    cloud.connect(host, int(port))
    cloud.loop_start()
    cloud.subscribe(f"devices/{DEVICE}/messages/events/#", qos=1)
    assert is_subscribed.wait(WAIT_S)
    key = base64.b64encode(b"a key").decode()
    with open(certificate) as file:
        device = IoTHubDeviceClient.create_from_connection_string(
            f"HostName=localhost;DeviceId={DEVICE};SharedAccessKey={key}",
            server_verification_cert=file.read(),
        )
    device.connect()
    message = Message("21.5", content_type="text/plain", content_encoding="utf-8")
    message.custom_properties["alarm"] = "no"
    device.send_message(message)
    found = telemetry.get(timeout=WAIT_S)
    assert found.payload == b"21.5"
    assert "alarm=no" in found.topic, found.topic  # That is where Azure has properties.
    came: queue.Queue[Any] = queue.Queue()
    device.on_message_received = came.put
    deadline = time.monotonic() + WAIT_S
    while came.empty() and time.monotonic() < deadline:  # It subscribes some time later.
        cloud.publish(f"devices/{DEVICE}/messages/devicebound/a=b", "restart", 1)
        time.sleep(0.2)
    assert came.get(timeout=1).data == b"restart"
    device.shutdown()
    cloud.disconnect()
    cloud.loop_stop()


def _tls(certificate: str) -> Any:
    options = io.TlsContextOptions()
    options.override_default_trust_store_from_path(None, certificate)
    return io.ClientTlsContext(options)


CHECKS: list[Callable[[str, int, str], None]] = [aws_3, aws_5, azure]


def main() -> None:
    if sys.argv[1] == "--list":
        for each in CHECKS:
            print(each.__doc__)
        return
    for each in CHECKS:
        try:
            each(sys.argv[1], int(sys.argv[2]), sys.argv[3])
            print(f"PASS {each.__doc__}", flush=True)
        except BaseException as error:
            print(f"FAIL {each.__doc__}: {type(error).__name__}: {error}", flush=True)


if __name__ == "__main__":
    main()
