"""Answers that a packet has no code for are not sent."""

from entrepot.core.errors import StorageError
from entrepot.gateway.mqtt.answers import Answers, Uncommitted
from entrepot.wire.mqtt.packets import V5
from entrepot.wire.mqtt.properties import PacketType
from entrepot.wire.mqtt.reasons import Reason


def _uncommitted() -> Uncommitted:
    return Uncommitted(lambda call, *arguments: call(*arguments), lambda: None)


def test_pubcomp_cannot_say_that_the_disk_has_failed() -> None:
    sent: list[bytes] = []
    refused: list[Reason] = []
    answers = Answers(PacketType.PUBCOMP, V5, _uncommitted(), sent.append, refused.append)
    answers.expect([7]).know(StorageError("no space left"))
    assert not sent
    assert refused == [Reason.UNSPECIFIED_ERROR]
    unknown = answers.expect([8])
    unknown.reasons = {0: Reason.PACKET_IDENTIFIER_NOT_FOUND}
    unknown.know()
    assert sent == [bytes.fromhex("7003 0008 92")]


def test_puback_can() -> None:
    sent: list[bytes] = []
    refused: list[Reason] = []
    answers = Answers(PacketType.PUBACK, V5, _uncommitted(), sent.append, refused.append)
    answers.expect([7]).know(StorageError("no space left"))
    assert sent == [bytes.fromhex("4003 0007 80")]
    assert not refused
