"""Where an AMQP broker is and who we are there, and which of its answers are worth another try.

The protocol is spoken by the house itself, with RabbitMQ as with any other broker of AMQP
0-9-1. What is said of a failure never has the password in it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar
from urllib.parse import SplitResult, quote, unquote, urlsplit

from entrepot.client.amqp_connection import AmqpConnection
from entrepot.client.errors import ClientError, Unreachable
from entrepot.client.queue_leases import Login
from entrepot.client.security import BadProperty, connection_security
from entrepot.connect.interface import ConfigError, ConnectError, Unavailable
from entrepot.core.ports import Net

HEARTBEAT_S = 60
_PORTS = {"amqp": 5672, "amqps": 5671}
_EXAMPLE = "amqp://user:password@host:5672/vhost"
_EXCLUSIVE_USE = "in exclusive use"  # As RabbitMQ puts it; the code alone says less.

_Connection = TypeVar("_Connection", bound=AmqpConnection)


@dataclass(frozen=True, slots=True, kw_only=True)
class AmqpOptions:
    url: str
    user: str | None = None  # Instead of the URL's.
    password: str | None = None
    ssl_ca: str | None = None  # PEM files.
    ssl_certificate: str | None = None
    ssl_key: str | None = None

    def url_problem(self) -> str | None:
        try:
            parts = urlsplit(self.url)
            is_whole = parts.scheme in _PORTS and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_whole = False
        if not is_whole:
            return f"url: as in {_EXAMPLE}, or amqps://…"
        if parts.query or parts.fragment:
            return "url: nothing comes after the virtual host; the rest are options"
        if parts.scheme == "amqp" and (self.ssl_ca or self.ssl_certificate):
            return "ssl_ca and ssl_certificate are for amqps://…"
        return None


class AmqpPlace(NamedTuple):
    host: str
    port: int
    vhost: str
    login: Login
    is_tls: bool

    @property
    def name(self) -> str:
        """For people."""
        scheme = "amqps" if self.is_tls else "amqp"
        return f"{scheme}://{self.host}:{self.port}/{quote(self.vhost, safe='')}"


def place_of(options: AmqpOptions) -> AmqpPlace:
    parts = urlsplit(options.url)
    user, password = _login(parts)
    return AmqpPlace(
        parts.hostname or "",
        parts.port or _PORTS[parts.scheme],
        unquote(parts.path.removeprefix("/")) or "/",
        Login(options.user or user, options.password or password),
        parts.scheme == "amqps",
    )


async def open_connection(kind: type[_Connection], options: AmqpOptions) -> _Connection:
    place = place_of(options)
    host = f"[{place.host}]" if ":" in place.host else place.host
    with told(place):
        return await kind.open(
            _net(options, place),
            f"{host}:{place.port}",
            place.login,
            vhost=place.vhost,
            heartbeat_s=HEARTBEAT_S,
        )


@contextmanager
def told(place: AmqpPlace) -> Iterator[None]:
    """What the client says of a failure, in the words of a connector."""
    try:
        yield
    except ClientError as error:
        raise explained(place, error) from None


def explained(place: AmqpPlace, error: ClientError) -> ConnectError:
    if isinstance(error, Unreachable):
        return Unavailable(str(error))
    passes = error.retriable or _EXCLUSIVE_USE in str(error)
    return (Unavailable if passes else ConnectError)(f"{place.name}: {error}")


def _login(parts: SplitResult) -> tuple[str, str]:
    default = Login()
    user = default.user if parts.username is None else unquote(parts.username)
    return user, default.password if parts.password is None else unquote(parts.password)


def _net(options: AmqpOptions, place: AmqpPlace) -> Net:
    """As one says it of Kafka's clients."""
    given = {
        "security.protocol": "SSL" if place.is_tls else "PLAINTEXT",
        "ssl.ca.location": options.ssl_ca,
        "ssl.certificate.location": options.ssl_certificate,
        "ssl.key.location": options.ssl_key,
    }
    try:
        net, _ = connection_security({name: text for name, text in given.items() if text})
    except BadProperty as error:
        raise ConfigError(f"options.ssl_ca, ssl_certificate, ssl_key: {error}") from None
    return net
