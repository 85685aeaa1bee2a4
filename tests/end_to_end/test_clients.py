"""Unmodified clients, each reading what each wrote: kcat, confluent-kafka, kafka-python, aiokafka.

A writer writes a run of messages in every codec into a topic of its own; every reader
reads them all, from the beginning, from an offset in the middle of a batch, from a time.
"""

import time
from itertools import groupby

import pytest

from entrepot.core.batch import Codec, walk
from entrepot.testing import Broker
from tests.end_to_end.bare import BareClient, fetch_request, now_ms
from tests.end_to_end.clients import CLIENTS, CODECS, Kcat, Message

PER_CODEC = 20
TIME_MS = now_ms() - 3_600_000  # Not so old that retention takes it.
HEADERS = (("colour", b"blue"), ("colour", b"green"), ("trace", b"\xc3\xa9t\xc3\xa9"))

NAMES = [
    pytest.param(
        name,
        marks=pytest.mark.skipif(
            name == "kcat" and not Kcat.is_installed(), reason="kcat is not installed"
        ),
    )
    for name in CLIENTS
]


def messages(codec: str) -> list[Message]:
    """Long enough and dull enough that every client finds compressing worth it."""
    first = CODECS.index(codec) * 1_000
    return [
        Message(
            b"key %d" % (number % 3),
            b"%s %d " % (codec.encode(), number) + b"and so on " * 50,
            HEADERS,
            TIME_MS + first + number,
        )
        for number in range(PER_CODEC)
    ]


@pytest.fixture(scope="module")
def written(server: Broker) -> dict[str, list[Message]]:
    """What is in each writer's topic, which is named after it."""
    found = {}
    for name, kind in CLIENTS.items():
        if name == "kcat" and not Kcat.is_installed():
            continue
        client = kind(server.bootstrap)
        client.create(name)
        for codec in CODECS:
            client.write(name, codec, messages(codec))
        found[name] = [message for codec in CODECS for message in messages(codec)]
    if "kcat" in found:  # It takes the time itself; the log says which.
        with BareClient(server) as bare:
            times = [record.timestamp_ms for record in bare.read("kcat")]
        assert all(abs(at / 1_000 - time.time()) < 300 for at in times)
        pairs = zip(found["kcat"], times, strict=True)
        found["kcat"] = [message._replace(timestamp_ms=at) for message, at in pairs]
    return found


@pytest.mark.parametrize("writer", NAMES)
def test_every_codec_is_really_used(
    server: Broker, written: dict[str, list[Message]], writer: str
) -> None:
    with BareClient(server) as bare:
        (fetched,) = bare.fetch(fetch_request(writer)).topics[0].partitions
    used = [header.codec for _, header in walk(fetched.records)]
    assert [codec for codec, _ in groupby(used)] == [Codec[name.upper()] for name in CODECS]


@pytest.mark.parametrize("reader", NAMES)
@pytest.mark.parametrize("writer", NAMES)
def test_each_reads_what_each_wrote(
    server: Broker, written: dict[str, list[Message]], writer: str, reader: str
) -> None:
    """Keys, values, headers and timestamps, in every codec. Proves Q-01."""
    expected = written[writer]
    client = CLIENTS[reader](server.bootstrap)
    assert client.read(writer, len(expected)) == expected
    middle = PER_CODEC + PER_CODEC // 2
    assert client.read(writer, len(expected) - middle, offset=middle) == expected[middle:]
    at = expected[2 * PER_CODEC + 5].timestamp_ms
    first = next(n for n, message in enumerate(expected) if message.timestamp_ms >= at)
    assert client.read(writer, len(expected) - first, time_ms=at) == expected[first:]


@pytest.mark.parametrize("writer", [name for name in CLIENTS if name != "kcat"])
def test_what_is_not_there_stays_so(server: Broker, writer: str) -> None:
    """A record without a key, without a value, without headers; an empty header."""
    topic = f"nothing-{writer}"
    sent = [
        Message(None, b"value", (), TIME_MS),
        Message(b"key", None, (), TIME_MS),
        Message(b"", b"", (("empty", b""),), TIME_MS),
    ]
    client = CLIENTS[writer](server.bootstrap)
    client.create(topic)
    client.write(topic, "none", sent)
    for name, kind in CLIENTS.items():
        if name != "kcat":  # Its JSON does not tell an empty value from none.
            assert kind(server.bootstrap).read(topic, 3) == sent, name
