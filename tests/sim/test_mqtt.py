"""MQTT's clients and a node that crashes again and again, and mistakes that must be found.

A seed that fails elsewhere is added.
"""

import pytest

from entrepot.broker.queue.log_lane import LogLane
from entrepot.broker.queue.message import Publication
from entrepot.broker.session.assigned import Assignments
from entrepot.broker.session.sender import Sender
from entrepot.broker.session.session import Session
from entrepot.broker.subject.retained import Retained
from entrepot.core.message import Message
from entrepot.gateway.mqtt.publishing import Publishing
from entrepot.log.policy import Durability
from sim.history import Violation
from sim.loop import run
from sim.mqtt_world import mqtt_world


# 3: a shared message that could not be recorded; 5: a queue that could not be read; 9, 615: stores
# that could not; 14: a retained message that was deleted twice; 69: a packet number used again
# after a refusal; 122: a repeated message overtaken.
@pytest.mark.parametrize(
    "number", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 5, 9, 14, 69, 122, 615))]
)
def test_what_is_answered_arrives_and_once_at_quality_2(number: int) -> None:
    result = run(number, mqtt_world(6.0 if number else 2.5))
    assert result.answered > 0
    assert result.deliveries > 0
    assert result.wills > 0
    assert result.retained > 0
    assert result.crashes > 0


@pytest.mark.parametrize(
    "durability", [Durability.OS, pytest.param(Durability.INTERVAL, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_kills_with_less_durability(number: int, durability: Durability) -> None:
    result = run(number, mqtt_world(2.0, durability=durability))
    assert result.answered > 0
    assert result.crashes > 0


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_many_seeds() -> None:
    for seed in range(1_000, 1_050):
        run(seed, mqtt_world(6.0))


@pytest.mark.slow
def test_one_seed_gives_one_trace() -> None:
    result = run(7, mqtt_world(2.0))
    assert run(7, mqtt_world(2.0)) == result
    assert run(8, mqtt_world(2.0)).trace != result.trace


# --- planted mistakes


def is_found_out(text: str | None = None, first: int = 0, **how: bool) -> None:
    def simulate() -> None:
        for seed in range(first, first + 40):
            run(seed, mqtt_world(4.0, **how))

    with pytest.raises(Violation, match=text):
        simulate()


@pytest.mark.slow
def test_a_disk_that_only_pretends_to_sync() -> None:
    is_found_out(sync_is_noop=True)


def test_messages_that_are_answered_before_they_are_permanent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(LogLane, "when_committed", lambda self, offset_end, waiter: waiter(None))
    is_found_out("not drained")


@pytest.mark.slow
def test_packets_of_quality_2_that_are_not_recognised(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash a message that is sent again is taken for a new one."""
    count = iter(range(10**9))
    monkeypatch.setattr(Sender, "identity", lambda self, packet: b"%d" % next(count))
    is_found_out("twice, at QoS 2")


@pytest.mark.slow
def test_received_messages_that_are_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash a message comes again to a client that has completed it."""
    monkeypatch.setattr(Session, "restore_released", lambda self, offsets: None)
    monkeypatch.setattr(Session, "received", _forget_to_settle)
    is_found_out()


def _forget_to_settle(self: Session, numbers: list[int]) -> None:
    if self.receiver is not None:
        self.receiver.release(numbers)


@pytest.mark.slow
def test_shared_messages_whose_sessions_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash a message that one of a group has goes to another."""
    monkeypatch.setattr(Assignments, "restore", lambda self, stored, queues: None)
    is_found_out("twice, at QoS 2")


@pytest.mark.slow
def test_repeated_messages_that_are_overtaken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Publishing, "repeats", property(lambda self: 0, lambda self, value: None))
    is_found_out("after", 300)


@pytest.mark.slow
def test_retained_messages_that_are_answered_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    keep = Retained.keep

    def hasty(self: Retained, message: Message, publication: Publication | None) -> None:
        keep(self, message, None)

    monkeypatch.setattr(Retained, "keep", hasty)
    is_found_out("retained of")
