"""One search over all names: queues, topics, exchanges, groups, transactional ids, connections,
sessions, retained messages, queries of Spark, nodes, users, settings.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.subject.name import to_path
from entrepot.core.steps import Steps
from entrepot.gateway.http.console import facts, groups, queues, spark, topics
from entrepot.gateway.http.management import connections, subjects
from entrepot.gateway.http.management.call import Call
from entrepot.gateway.http.management.messages import to_json
from entrepot.wire.http import limits as http_limits

Row = dict[str, Any]
_STEP = 200


async def search(call: Call) -> list[Row]:
    """Return things whose names have the text, those that begin with it first."""
    wanted = call.query.get("q", "").strip().lower()
    if not wanted:
        return []
    return await call.broker.turns.run(_search(call, wanted))


def _search(call: Call, wanted: str) -> Steps[list[Row]]:
    found: list[tuple[int, int, Row]] = []
    share = http_limits.SEARCH_RESULTS_MAX
    kinds = _kinds(call, wanted)
    kinds["retained"] = (("", name) for name in (yield from _retained(call)))
    kinds["spark"] = (("", name) for name in (yield from spark.names(call)))
    for number, (kind, names) in enumerate(kinds.items()):
        rows: list[tuple[int, int, Row]] = []
        for count, (vhost, name) in enumerate(names):
            if wanted in name.lower() and len(rows) < share * 20:
                place = name.lower().find(wanted)
                row = {"kind": kind, "vhost": vhost, "name": to_json(name)}
                rows.append((min(place, 1), number, row))
            if count % _STEP == 0:
                yield
        rows.sort(key=lambda entry: (entry[0], len(entry[2]["name"])))
        found += rows[:share]
    found.sort(key=lambda entry: entry[:2])
    return [row for _, _, row in islice(found, share)]


def _kinds(call: Call, wanted: str) -> dict[str, Iterator[tuple[str, str]]]:
    """Return where to look, each with (virtual host or empty, name)."""
    kinds: dict[str, Iterator[tuple[str, str]]] = {
        "queue": queues.find_by_name(call, wanted),
        "topic": (("", topic.name) for topic in topics.visible(call)),
        "exchange": (
            (vhost.name, exchange.name)
            for vhost in call.vhosts
            for exchange in list(vhost.router.exchanges())
            if exchange.name
        ),
        "group": (("", group.group_id) for group in groups.visible(call)),
        "transaction": (("", each.transactional_id) for each in facts.transactions(call)),
    }
    if call.sees_all:
        kinds["connection"] = (("", each.name) for _, each in connections.all_visible(call))
        if call.broker.has_queues:
            sessions = list(call.broker.vhosts.default.sessions)
            kinds["session"] = (("", each.client_id) for each in sessions)
        if call.broker.cluster is not None:
            peers = call.broker.cluster.peers()
            kinds["node"] = (("", f"{each.id} {each.host}") for each in peers)
        kinds["setting"] = (("", each.name) for each in call.context.settings())
    if call.principal.is_administrator:
        kinds["user"] = (("", name) for name in call.broker.users.names())
    return kinds


def _retained(call: Call) -> Steps[list[str]]:
    """Return the topics of MQTT with a retained message that the user may read."""
    if not call.broker.has_queues:
        return []
    may, kind = call.principal.may, ResourceKind.TOPIC
    found = yield from call.broker.vhosts.default.retained.matching(subjects.everything())
    names = []
    for number, each in enumerate(found):
        if may(Operation.READ, kind, each.subject):
            names.append(to_path(each.subject))
        if number % _STEP == 0:
            yield
    return names
