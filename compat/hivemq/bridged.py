"""Publish on both sides of a bridge, and look what comes on the other: all of it, once.

python bridged.py HERE:PORT THERE:PORT, where `here/#` is `there/#` on the other side.
"""

import sys
import threading
import time
from collections import Counter

import paho.mqtt.client as paho

WAIT_S = 60.0
EACH = 20  # Messages of each quality.


class Side:
    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self.came: Counter[str] = Counter()
        self._is_subscribed = threading.Event()
        host, _, port = address.rpartition(":")
        self.client = paho.Client(
            paho.CallbackAPIVersion.VERSION2, f"bridged-{name}", protocol=paho.MQTTv5
        )
        self.client.on_message = self._on_message
        self.client.on_subscribe = lambda *_: self._is_subscribed.set()
        self.client.connect(host, int(port))
        self.client.loop_start()
        self.client.subscribe(f"{name}/#", qos=2)
        assert self._is_subscribed.wait(WAIT_S)

    def _on_message(self, client: object, data: object, message: paho.MQTTMessage) -> None:
        self.came[f"{message.topic.partition('/')[2]} {message.payload.decode()}"] += 1

    def publish(self, topic: str, text: str, qos: int) -> None:
        self.client.publish(f"{self.name}/{topic}", text, qos).wait_for_publish(WAIT_S)

    def wait_for(self, text: str, seconds: float = WAIT_S) -> bool:
        deadline = time.monotonic() + seconds
        while text not in self.came and time.monotonic() < deadline:
            time.sleep(0.02)
        return text in self.came


def main() -> None:
    here, there = Side("here", sys.argv[1]), Side("there", sys.argv[2])
    for one, other in ((here, there), (there, here)):
        for attempt in range(60):  # Until the bridge is connected and has subscribed.
            one.publish("probe", f"{one.name} {attempt}", 1)
            if other.wait_for(f"probe {one.name} {attempt}", 1):
                break
        else:
            raise SystemExit(f"nothing crosses from {one.name} to {other.name}")
    wanted = Counter[str]()
    for one in (here, there):
        for qos in range(3):
            for number in range(EACH):
                one.publish(f"from-{one.name}/{qos}", str(number), qos)
                wanted[f"from-{one.name}/{qos} {number}"] = 1
    deadline = time.monotonic() + WAIT_S
    for side in (here, there):
        while any(not side.came[each] for each in wanted) and time.monotonic() < deadline:
            time.sleep(0.02)
    time.sleep(1)  # For what goes round.
    for side in (here, there):
        found = Counter({each: count for each, count in side.came.items() if each in wanted})
        if found != wanted:
            raise SystemExit(f"{side.name}: lacks {wanted - found}, and has twice {found - wanted}")
    print(f"{2 * len(wanted)} messages, each once on both sides")


if __name__ == "__main__":
    main()
