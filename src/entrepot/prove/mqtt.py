"""MQTT 5, by paho: at most, at least and exactly once are its qualities 0, 1 and 2."""

from __future__ import annotations

import queue
import threading
from typing import Any

import paho.mqtt.client as paho
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from entrepot.prove.clients import POLL_S, SOURCE, WAIT_S, Delivery, Lost, Plain, Setting
from entrepot.prove.semantics import Semantics

_QOS = {Semantics.AT_MOST_ONCE: 0, Semantics.AT_LEAST_ONCE: 1, Semantics.EXACTLY_ONCE: 2}
_SESSION_S = 600


def prepare(setting: Setting) -> None:
    """Do nothing: a subscription is all there is to be made."""


def sender(setting: Setting) -> MqttSender:
    return MqttSender(setting)


def receiver(setting: Setting) -> MqttReceiver:
    return MqttReceiver(setting)


class MqttSender(Plain):
    def __init__(self, setting: Setting) -> None:
        self._qos = _QOS[setting.semantics]
        self._client = paho.Client(paho.CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5)
        self._client.connect(*setting.endpoints["mqtt"])
        self._client.loop_start()

    def send(self, number: int) -> None:
        sent = self._client.publish(SOURCE, str(number), self._qos)
        sent.wait_for_publish(WAIT_S if self._client.is_connected() else POLL_S)
        if not sent.is_published():
            raise Lost("no acknowledgement came")

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()


class MqttReceiver(Plain):
    """A session that outlives its connections, unless nothing is to be kept."""

    def __init__(self, setting: Setting) -> None:
        self._qos = _QOS[setting.semantics]
        self._came: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._client = paho.Client(
            paho.CallbackAPIVersion.VERSION2,
            "prove-consumer",
            protocol=paho.MQTTv5,
        )
        self._handled: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._is_there = threading.Event()
        self._client.on_message = self._on_message
        self._client.on_subscribe = lambda *_: self._is_there.set()
        self._client.on_disconnect = lambda *_: self._came.put(None)
        properties = Properties(PacketTypes.CONNECT)
        properties.SessionExpiryInterval = _SESSION_S if self._qos else 0
        # One at a time: what paho has received of quality 2, and not handed out, dies with it.
        properties.ReceiveMaximum = 1
        host, port = setting.endpoints["mqtt"]
        self._client.connect(host, port, clean_start=not self._qos, properties=properties)
        self._client.loop_start()
        self._client.subscribe(SOURCE, self._qos)
        if not self._is_there.wait(WAIT_S):
            raise Lost("no answer to the subscription")

    def receive(self) -> Delivery | None:
        try:
            message = self._came.get(timeout=POLL_S)
        except queue.Empty:
            return None
        if message is None:
            self._client.loop_stop()
            raise Lost("the connection is gone")
        return Delivery(int(message.payload), message)

    def acknowledge(self, delivery: Delivery) -> None:
        self._handled.put(None)

    def _on_message(self, client: paho.Client, data: object, message: paho.MQTTMessage) -> None:
        """Wait until it was worked on: paho acknowledges when this returns."""
        self._came.put(message)
        self._is_there.set()  # What waited for us comes before the answer to the subscription.
        self._handled.get()

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()
