"""The paths of the API, and the functions behind them by method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from entrepot.gateway.http.console import (
    cluster,
    facts,
    graph,
    groups,
    reader,
    routing,
    schemas,
    search,
    topics,
)
from entrepot.gateway.http.console import queues as console_queues
from entrepot.gateway.http.management import (
    accounts,
    bindings,
    connections,
    contents,
    definitions,
    exchanges,
    leases,
    links,
    overview,
    queues,
    subjects,
    users,
    vhosts,
)
from entrepot.gateway.http.management.call import Call

Function = Callable[[Call], object | Awaitable[object]]

_ENDS = "bindings/{vhost}/e/{source}/{kind}/{destination}"
_QUEUE = "queues/{vhost}/{name}"
_EXCHANGE = "exchanges/{vhost}/{name}"
_TABLE: dict[str, dict[str, Function]] = {
    "overview": {"GET": overview.overview},
    "whoami": {"GET": users.who_am_i},
    "cluster-name": {"GET": overview.cluster_name},
    "nodes": {"GET": overview.nodes},
    "nodes/{name}": {"GET": overview.node},
    "aliveness-test/{vhost}": {"GET": overview.is_alive},
    "healthchecks/node": {"GET": overview.is_alive},
    "health/checks/alarms": {"GET": overview.is_alive},
    "health/checks/local-alarms": {"GET": overview.is_alive},
    "health/checks/virtual-hosts": {"GET": overview.is_alive},
    "faults": {"GET": overview.faults},
    "bridges": {"GET": overview.bridges},
    "links": {"GET": links.list_all},
    "links/{name}": {"PUT": links.add, "DELETE": links.remove},
    "routes": {"GET": links.list_routes},
    "extensions": {"GET": overview.nothing},
    "parameters": {"GET": overview.nothing},
    "policies": {"GET": overview.nothing},
    "operator-policies": {"GET": overview.nothing},
    "topic-permissions": {"GET": overview.nothing},
    "vhost-limits": {"GET": overview.nothing},
    "application": {"GET": overview.application, "PUT": overview.run},
    "application/contents": {"DELETE": overview.reset},
    "definitions": {"GET": definitions.export, "POST": definitions.take},
    "definitions/{vhost}": {"GET": definitions.export, "POST": definitions.take},
    "vhosts": {"GET": vhosts.list_all},
    "vhosts/{vhost}": {"GET": vhosts.show, "PUT": vhosts.create, "DELETE": vhosts.delete},
    "vhosts/{vhost}/permissions": {"GET": vhosts.list_permissions},
    "vhosts/{vhost}/connections": {"GET": connections.list_connections},
    "vhosts/{vhost}/channels": {"GET": connections.list_channels},
    "users": {"GET": users.list_all},
    "users/{user}": {"GET": users.show, "PUT": users.put, "DELETE": users.delete},
    "users/{user}/keys": {"GET": users.list_keys, "POST": users.add_key},
    "users/{user}/keys/{key}": {"DELETE": users.delete_key},
    "users/{user}/permissions": {"GET": vhosts.list_permissions},
    "permissions": {"GET": vhosts.list_permissions},
    "permissions/{vhost}/{user}": {
        "GET": vhosts.show_permission,
        "PUT": vhosts.set_permission,
        "DELETE": vhosts.clear_permission,
    },
    "queues": {"GET": queues.list_all},
    "queues/{vhost}": {"GET": queues.list_all},
    _QUEUE: {"GET": queues.show, "PUT": queues.declare, "DELETE": queues.delete},
    "accounts": {"GET": accounts.list_all},
    "accounts/{vhost}": {"GET": accounts.list_all},
    "accounts/{vhost}/{name}": {"GET": accounts.show},
    f"{_QUEUE}/bindings": {"GET": bindings.of_queue},
    f"{_QUEUE}/contents": {"DELETE": contents.purge},
    f"{_QUEUE}/get": {"POST": contents.take},
    f"{_QUEUE}/lease": {"POST": leases.lease},
    f"{_QUEUE}/leases/{{lease}}": {"POST": leases.change},
    f"{_QUEUE}/rewind": {"POST": contents.rewind},
    f"{_QUEUE}/move": {"POST": contents.move},
    f"{_QUEUE}/deferred": {"GET": contents.deferred},
    f"{_QUEUE}/deferred/{{offset}}": {
        "PUT": contents.change_deferred,
        "DELETE": contents.cancel_deferred,
    },
    "exchanges": {"GET": exchanges.list_all},
    "exchanges/{vhost}": {"GET": exchanges.list_all},
    _EXCHANGE: {"GET": exchanges.show, "PUT": exchanges.declare, "DELETE": exchanges.delete},
    f"{_EXCHANGE}/publish": {"POST": exchanges.publish},
    f"{_EXCHANGE}/bindings/source": {"GET": bindings.from_exchange},
    f"{_EXCHANGE}/bindings/destination": {"GET": bindings.to_exchange},
    "bindings": {"GET": bindings.list_all},
    "bindings/{vhost}": {"GET": bindings.list_all},
    _ENDS: {"GET": bindings.between, "POST": bindings.bind},
    f"{_ENDS}/{{properties}}": {"GET": bindings.show, "DELETE": bindings.unbind},
    "connections": {"GET": connections.list_connections},
    "connections/{name}": {
        "GET": connections.show_connection,
        "DELETE": connections.close_connection,
    },
    "connections/{name}/channels": {"GET": connections.channels_of_connection},
    "channels": {"GET": connections.list_channels},
    "channels/{name}": {"GET": connections.show_channel},
    "sessions": {"GET": subjects.list_sessions},
    "sessions/{client_id}": {"GET": subjects.show_session, "DELETE": subjects.delete_session},
    "retained": {"GET": subjects.list_retained, "DELETE": subjects.clear_retained},
    "consumers": {"GET": connections.list_consumers},
    "consumers/{vhost}": {"GET": connections.list_consumers},
}

_TOPIC = "console/topics/{topic}"
_GROUP = "console/groups/{group}"
_TABLE |= {
    "console/queues": {"GET": console_queues.list_page},
    "console/queues/{vhost}/{name}": {"GET": console_queues.show},
    "console/queues/{vhost}/{name}/send-back": {"POST": console_queues.send_back},
    "console/topics": {"GET": topics.list_page},
    _TOPIC: {"GET": topics.show, "PUT": topics.create, "DELETE": topics.delete},
    f"{_TOPIC}/records": {"GET": reader.read, "POST": topics.produce},
    f"{_TOPIC}/records/{{partition}}/{{offset}}": {"GET": reader.one},
    "console/groups": {"GET": groups.list_page},
    _GROUP: {"GET": groups.show, "DELETE": groups.delete},
    f"{_GROUP}/reset": {"POST": groups.reset},
    "console/trace/{vhost}/{name}": {"POST": routing.trace},
    "console/graph/{vhost}": {"GET": graph.show},
    "console/search": {"GET": search.search},
    "console/connections": {"GET": facts.list_connections},
    "console/sessions": {"GET": facts.list_sessions},
    "console/retained": {"GET": facts.list_retained},
    "console/transactions": {"GET": facts.list_transactions},
    "console/settings": {"GET": facts.list_settings},
    "console/storage": {"GET": facts.list_storage},
    "console/acls": {"GET": facts.list_rules},
    "console/cluster": {"GET": cluster.show},
    "console/cluster/partitions": {"GET": cluster.list_partitions},
    "console/schemas/{id}": {"GET": schemas.show},
}

ROUTES = tuple((tuple(path.split("/")), functions) for path, functions in _TABLE.items())
