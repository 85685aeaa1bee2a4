"""Makes a queue manager from the settings. The server starts it."""

from __future__ import annotations

import msgspec

from entrepot.broker.broker import Broker
from entrepot.broker.links import StoredLink
from entrepot.client.queue_leases import Login
from entrepot.config import Config, ConfigError, ManagerLink, read_text
from entrepot.core.errors import InvalidLink
from entrepot.core.ports import Clock, Entropy, Net
from entrepot.linking.manager import Neighbour, QueueManager
from entrepot.linking.table import RoutingTable
from entrepot.net.tls import TlsNet, client_context


def make_manager(
    config: Config, broker: Broker, clock: Clock, entropy: Entropy, net: Net
) -> QueueManager:
    """Make the queue manager. Raises ConfigError."""
    own, names = config.manager.name, [each.to for each in config.link]
    if own in names:
        raise ConfigError(f"link {own}: it leads to this manager itself")
    if len(dict.fromkeys(names)) < len(names):
        raise ConfigError("link: there are two links to one manager")
    routes: dict[str, str] = {}
    queues: dict[str, str] = {}
    for route in config.route:
        if route.via is not None and route.via not in names:
            raise ConfigError(f"route {route.manager}: there is no link to {route.via}")
        if route.via is not None:
            routes[route.manager] = route.via
        queues |= dict.fromkeys(route.queues, route.manager)
    return QueueManager(
        broker,
        clock,
        entropy,
        RoutingTable(own, names, routes, queues),
        [_neighbour(each, net, broker) for each in config.link],
        announced=config.manager.announce,
        stores=config.manager.store,
        neighbour_of=lambda stored: _added(stored, net, broker),
    )


def _added(stored: StoredLink, net: Net, broker: Broker) -> Neighbour:
    """Make the neighbour of a link that was added. Raises InvalidLink."""
    try:
        settings = msgspec.convert(msgspec.structs.asdict(stored), ManagerLink)
        return _neighbour(settings, net, broker)
    except (ConfigError, msgspec.ValidationError) as error:
        raise InvalidLink(str(error)) from None


def _neighbour(link: ManagerLink, net: Net, broker: Broker) -> Neighbour:
    password = "guest" if link.password is None else link.password
    if link.password_file is not None:
        password = (read_text(link.password_file).splitlines() or [""])[0]
    host, _, port = link.address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65_536:
        text = f'link {link.to}: address "{link.address}" is not like "london.example.com:5672"'
        raise ConfigError(text)
    if link.tls:
        try:
            tls = client_context(link.ca, link.certificate, link.key)
        except OSError as error:
            raise ConfigError(f"link {link.to}: TLS: {error}") from None
        net = TlsNet(client=tls, faults=broker.faults)
    return Neighbour(link.to, link.address, Login(link.user, password), net, link.vhost)
