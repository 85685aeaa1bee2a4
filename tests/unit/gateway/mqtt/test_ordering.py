"""Which topics are unordered."""

import pytest

from entrepot.core.errors import InvalidName
from entrepot.core.message import Envelope, Message
from entrepot.gateway.mqtt.format import MQTT
from entrepot.gateway.mqtt.ordering import Unordered
from entrepot.server import StartError
from tests.unit.client.test_mqtt import Stage, play


def on(*subjects: str) -> list[Message]:
    return [(Envelope("amq.topic", each, b"", MQTT), b"") for each in subjects]


def test_all_have_to_be_unordered() -> None:
    unordered = Unordered(["telemetry/#", "a/+/c"])
    assert unordered.has_all(on("telemetry.7.heat", "telemetry", "a.b.c"))
    assert not unordered.has_all(on("telemetry.7.heat", "orders"))
    assert not unordered.has_all(on("a.b"))
    assert not Unordered().has_all(on("a"))


@pytest.mark.parametrize("filter", ["a/#/b", "a#", "", "$share/group/a", "$queue/a"])
def test_what_is_no_filter(filter: str) -> None:
    with pytest.raises(InvalidName):
        Unordered([filter])


def test_a_broker_does_not_start_with_it() -> None:
    async def story(stage: Stage) -> None:
        raise AssertionError("it has started")

    with pytest.raises(StartError, match=r"mqtt\.unordered: # stands alone"):
        play(0, story, {"mqtt": {"unordered": ["a/#/b"]}})
