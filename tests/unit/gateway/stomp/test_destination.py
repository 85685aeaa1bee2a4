"""What destinations mean, and how they are written."""

import pytest

from entrepot.core.errors import PeerError
from entrepot.gateway.stomp.destination import Destination, Kind, describe, parse


@pytest.mark.parametrize(
    ("text", "kind", "exchange", "key"),
    [
        ("/queue/work", Kind.QUEUE, "", "work"),
        ("/queue/a%2Fb%25", Kind.QUEUE, "", "a/b%"),
        ("/queue/größe", Kind.QUEUE, "", "größe"),
        ("/topic/a.*.#", Kind.TOPIC, "amq.topic", "a.*.#"),
        ("/exchange/logs", Kind.EXCHANGE, "logs", ""),
        ("/exchange/logs/info", Kind.EXCHANGE, "logs", "info"),
        ("/exchange/a%2Fb/c%2Fd", Kind.EXCHANGE, "a/b", "c/d"),
        ("/exchange/logs/", Kind.EXCHANGE, "logs", ""),
        ("/amq/queue/work", Kind.EXISTING_QUEUE, "", "work"),
        ("/temp-queue/mine", Kind.TEMPORARY_QUEUE, "", "mine"),
        ("/reply-queue/amq.gen-1/2", Kind.REPLY_QUEUE, "", "amq.gen-1/2"),
    ],
)
def test_reading(text: str, kind: Kind, exchange: str, key: str) -> None:
    assert parse(text) == Destination(kind, exchange, key)


@pytest.mark.parametrize(
    "text",
    [
        *("", "work", "queue/work", "/queue", "/queue/", "/queue/a/b", "/topic/", "/exchange/"),
        *("/exchange//key", "/exchange/a/b/c", "/amq/queue/", "/temp-queue/", "/reply-queue/"),
        *("/queue/a%0Ab", "/queue/a\rb", "/queue/" + 256 * "x", "/exchange/" + 256 * "x"),
        *("/topic/" + 128 * "ö", "/dsub/x", "/QUEUE/x"),
    ],
)
def test_what_is_none(text: str) -> None:
    with pytest.raises(PeerError, match="not a valid destination"):
        parse(text)


@pytest.mark.parametrize(
    ("exchange", "key", "text"),
    [
        ("", "work", "/queue/work"),
        ("", "a/b%", "/queue/a%2Fb%25"),
        ("", "größe", "/queue/größe"),
        ("", "\udcff/\udcfe%", "/queue/%FF%2F%FE%25"),
        ("amq.topic", "a.b", "/topic/a.b"),
        ("logs", "", "/exchange/logs"),
        ("a/b", "c/d", "/exchange/a%2Fb/c%2Fd"),
    ],
)
def test_writing_and_reading_again(exchange: str, key: str, text: str) -> None:
    assert describe(exchange, key) == text
    assert parse(text)[1:] == (exchange, key)
