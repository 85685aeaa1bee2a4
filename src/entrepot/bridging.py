"""Makes bridges to other MQTT brokers from the settings. The server starts them."""

from __future__ import annotations

from entrepot.config import Bridge as Settings
from entrepot.config import BridgeTopics, ConfigError, read_text
from entrepot.core.ports import Net
from entrepot.gateway.mqtt.bridge.bridge import Bridge
from entrepot.gateway.mqtt.bridge.topics import Route, Topics
from entrepot.gateway.mqtt.context import Context
from entrepot.net.tls import TlsNet, client_context
from entrepot.wire.mqtt.packets import V5, V311
from entrepot.wire.mqtt.reasons import MqttError

_VERSIONS = {"3.1.1": V311, "5": V5}


def make_bridge(settings: Settings, context: Context, net: Net) -> Bridge:
    """Make a bridge, on a net of its own if it uses TLS. Raises ConfigError."""
    where = f"bridge {settings.name}"
    password = settings.password
    if settings.password_file is not None:
        password = (read_text(settings.password_file).splitlines() or [""])[0]
    try:
        if settings.tls:
            tls = client_context(settings.ca, settings.certificate, settings.key)
            net = TlsNet(client=tls, faults=context.broker.faults)
        topics = Topics([_route(each) for each in settings.topics])
    except OSError as error:
        raise ConfigError(f"{where}: TLS: {error}") from None
    except MqttError as error:
        raise ConfigError(f"{where}: {error}") from None
    return Bridge(
        settings.name,
        _address(settings.address, where),
        net,
        context,
        topics,
        version=_VERSIONS[settings.version],
        client_id=settings.client_id or "",
        user=settings.user,
        password=password,
        keep_alive_s=settings.keep_alive_seconds,
    )


def _route(topics: BridgeTopics) -> Route:
    return Route(
        topics.filter,
        is_in=topics.direction != "out",
        is_out=topics.direction != "in",
        qos=topics.qos,
        local_prefix=topics.local_prefix,
        remote_prefix=topics.remote_prefix,
    )


def _address(text: str, where: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ConfigError(f'{where}: address "{text}" is not like "mqtt.example.com:1883"')
    return host.strip("[]"), int(port)
