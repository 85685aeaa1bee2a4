"""Routing as one would write it down: every binding is looked at, for every message.

Nothing here is quick or clever, and nothing is shared with the router but the values, so that
the two can be held against each other.
"""

from collections.abc import Mapping, Sequence

from entrepot.broker.router.event import Binding, DestinationKind, Exchange, ExchangeType


def topic_matches(pattern: Sequence[str], words: Sequence[str]) -> bool:
    if not pattern:
        return not words
    if pattern[0] == "#":
        return any(topic_matches(pattern[1:], words[n:]) for n in range(len(words) + 1))
    return bool(words) and pattern[0] in ("*", words[0]) and topic_matches(pattern[1:], words[1:])


def split(key: str) -> list[str]:
    return key.split(".") if key else []


def headers_match(arguments: Mapping[str, object], headers: Mapping[str, object]) -> bool:
    mode = arguments.get("x-match", "all")
    assert isinstance(mode, str)
    holds = [
        name in headers and (value is None or same(value, headers[name]))
        for name, value in arguments.items()
        if name != "x-match" and (mode.endswith("with-x") or not name.startswith("x-"))
    ]
    return any(holds) if mode.startswith("any") else all(holds)


def same(one: object, other: object) -> bool:
    if isinstance(one, bytes):
        one = one.decode()
    if isinstance(other, bytes):
        other = other.decode()
    return type(one) is type(other) and one == other


class Model:
    def __init__(
        self,
        exchanges: Mapping[str, Exchange],
        bindings: Sequence[tuple[Binding, Mapping[str, object]]],
        queues: Sequence[str],
    ) -> None:
        """Each binding with its arguments as they were given."""
        self.exchanges = exchanges
        self.bindings = bindings
        self.queues = queues

    def route(self, start: str, keys: Sequence[str], headers: Mapping[str, object]) -> list[str]:
        if start == "":
            return sorted({key for key in keys if key in self.queues})
        pending, seen, found = [start], [start], set()
        while pending:
            exchange = self.exchanges[pending.pop()]
            matched = [
                binding.destination
                for binding, arguments in self.bindings
                if binding.source == exchange.name
                and self.matches(exchange, binding, arguments, keys, headers)
            ]
            found |= {name for kind, name in matched if kind is DestinationKind.QUEUE}
            following = [name for kind, name in matched if kind is DestinationKind.EXCHANGE]
            alternate = exchange.settings.alternate
            if not matched and alternate is not None:
                following = [alternate]
            for name in following:
                if name in self.exchanges and name not in seen:
                    seen.append(name)
                    pending.append(name)
        return sorted(found)

    def matches(
        self,
        exchange: Exchange,
        binding: Binding,
        arguments: Mapping[str, object],
        keys: Sequence[str],
        headers: Mapping[str, object],
    ) -> bool:
        match exchange.type:
            case ExchangeType.DIRECT:
                return binding.key in keys
            case ExchangeType.TOPIC:
                return any(topic_matches(split(binding.key), split(key)) for key in keys)
            case ExchangeType.HEADERS:
                return headers_match(arguments, headers)
        assert exchange.type is ExchangeType.FANOUT
        return True
