"""Where the broker is, who we are there, and what is said when it goes wrong."""

import asyncio
from typing import Any

import pytest

from entrepot.client.amqp_connection import AmqpConnection, AmqpRefused
from entrepot.client.errors import BadAnswer, ClientError, Unreachable
from entrepot.connect.amqp_session import (
    AmqpOptions,
    AmqpPlace,
    explained,
    open_connection,
    place_of,
)
from entrepot.connect.interface import ConfigError, ConnectError, Unavailable
from tests.unit.connect.alone import Bench


def place(url: str, **options: Any) -> AmqpPlace:
    return place_of(AmqpOptions(url=url, **options))


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("amqp://h", ("h", 5672, "/", ("guest", "guest"), False)),
        ("amqp://h/", ("h", 5672, "/", ("guest", "guest"), False)),
        ("amqps://ana:p%40ss%2F@h/shop", ("h", 5671, "shop", ("ana", "p@ss/"), True)),
        ("amqp://ana@[::1]:7/%2Fa%2fb", ("::1", 7, "/a/b", ("ana", "guest"), False)),
    ],
)
def test_urls(url: str, expected: Any) -> None:
    assert place(url) == expected


def test_the_login_may_stand_beside_the_url() -> None:
    found = place("amqp://bob:x@h", user="ana", password="s3cret")
    assert found.login == ("ana", "s3cret")
    assert found.name == "amqp://h:5672/%2F"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "http://h"}, r"options\.url: as in amqp://user:password@host:5672/vhost"),
        ({"url": "amqp:///shop"}, r"options\.url: as in"),
        ({"url": "amqp://h:x/"}, r"options\.url: as in"),
        ({"url": "amqp://h:0/"}, r"options\.url: as in"),
        ({"url": "amqp://h/?heartbeat=1"}, r"options\.url: nothing comes after"),
        ({"url": "amqp://h", "ssl_ca": "ca.pem"}, r"options\.ssl_ca and ssl_certificate are for"),
    ],
)
def test_mistakes(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Bench().make("amqp-sink", **options)
    with pytest.raises(ConfigError, match=problem):
        Bench().make("amqp-source", queue="q", **options)


def test_a_certificate_that_is_not_there() -> None:
    options = AmqpOptions(url="amqps://127.0.0.1:1", ssl_ca="/none.pem")
    with pytest.raises(ConfigError, match=r"options\.ssl_ca.*No such file"):
        asyncio.run(open_connection(AmqpConnection, options))


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (Unreachable("no broker answers"), Unavailable, "no broker answers"),
        (AmqpRefused(320, "CONNECTION_FORCED"), Unavailable, "amqp://h:5672/v: CONNECTION_FORCED"),
        (AmqpRefused(403, "queue 'q' in exclusive use"), Unavailable, "queue 'q' in exclusive use"),
        (AmqpRefused(403, "ACCESS_REFUSED"), ConnectError, "amqp://h:5672/v: ACCESS_REFUSED"),
        (BadAnswer("no AMQP"), ConnectError, "no AMQP"),
    ],
)
def test_what_is_worth_another_try(error: ClientError, kind: type[ConnectError], text: str) -> None:
    found = explained(place("amqp://ana:secret@h/v"), error)
    assert type(found) is kind
    assert text in str(found)
    assert "secret" not in str(found)
