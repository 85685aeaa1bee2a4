"""Who a client is and how it connects, from Kafka's client properties."""

import re
from collections.abc import Callable, Mapping

from entrepot.client.errors import ClientError
from entrepot.client.sasl import Credentials
from entrepot.net.sockets import SocketNet

# What we read of them, as Kafka's clients and librdkafka name it.
SECURITY_PROPERTIES = (
    "security.protocol",
    "sasl.jaas.config",
    "sasl.mechanism",
    "sasl.mechanisms",
    "sasl.password",
    "sasl.username",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.keystore.type",
    "ssl.truststore.location",
    "ssl.truststore.type",
)
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class BadProperty(ClientError):
    """A property that is missing or not understood; the message begins with its name."""


def connection_security(
    properties: Mapping[str, str],
    *,
    user: str | None = None,
    ask_password: Callable[[str], str] | None = None,
) -> tuple[SocketNet, Credentials | None]:
    """The net to connect through, and who to be.

    A user takes the place of the one in the properties, and of the password there.
    Without somebody to ask, a missing password is an error.
    """
    protocol = properties.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise BadProperty(f"security.protocol is one of {', '.join(_PROTOCOLS)}")
    credentials = None
    if user is not None or protocol.startswith("SASL_"):
        credentials = _credentials(properties, user, ask_password)
    return _net(properties, is_tls=protocol.endswith("SSL")), credentials


def _credentials(
    given: Mapping[str, str], user: str | None, ask_password: Callable[[str], str] | None
) -> Credentials:
    mechanism = given.get("sasl.mechanism") or given.get("sasl.mechanisms") or _MECHANISMS[-1]
    if mechanism not in _MECHANISMS:
        raise BadProperty(f"sasl.mechanism is one of {', '.join(_MECHANISMS)}")
    name = user or given.get("sasl.username") or _from_jaas(given, "username")
    if not name:
        raise BadProperty("sasl.username is missing: no user to log in as")
    password = None
    if user is None:
        password = given.get("sasl.password") or _from_jaas(given, "password")
    if not password:
        if ask_password is None:
            raise BadProperty("sasl.password is missing: nobody is there to type it")
        password = ask_password(f"Password of {name}")
    return Credentials(name, password, mechanism)


def _from_jaas(given: Mapping[str, str], key: str) -> str | None:
    """`…LoginModule required username="ana" password="…";`"""
    found = re.search(rf'\b{key}="((?:[^"\\]|\\.)*)"', given.get("sasl.jaas.config", ""))
    return re.sub(r"\\(.)", r"\1", found[1]) if found else None


def _net(given: Mapping[str, str], *, is_tls: bool) -> SocketNet:
    if not is_tls:
        return SocketNet()
    from entrepot.net.tls import TlsNet, client_context

    for store in ("truststore", "keystore"):
        kind = given.get(f"ssl.{store}.type", "PEM")
        if f"ssl.{store}.location" in given and kind.upper() != "PEM":
            raise BadProperty(f"ssl.{store}.type: PEM is read, {kind} is not")
    certificate = given.get("ssl.certificate.location") or given.get("ssl.keystore.location")
    try:
        context = client_context(
            given.get("ssl.ca.location") or given.get("ssl.truststore.location"),
            certificate,
            given.get("ssl.key.location"),
            check_host=given.get("ssl.endpoint.identification.algorithm", "https") != "",
        )
    except OSError as error:
        raise BadProperty(f"ssl: {error.strerror or error}") from None
    return TlsNet(client=context)
