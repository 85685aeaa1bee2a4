"""Translation of a binding's key and arguments to the broker's conditions.

At a headers exchange the arguments are conditions on a message's headers, and one of them,
`x-match`, says whether all must hold or any, and whether those on headers named `x-…` count.
At a selector exchange, which is ours, `x-selector` is a selector; without one, all messages match.
At other exchanges they have no meaning, and only distinguish bindings.
"""

from __future__ import annotations

from dataclasses import dataclass

from entrepot.broker.router.event import Binding, Destination, Exchange, ExchangeType, Match
from entrepot.broker.selector import Selector
from entrepot.core import limits
from entrepot.core.errors import InvalidBinding, InvalidSelector
from entrepot.core.value import FrozenTable, lookup
from entrepot.gateway.rabbitmq.erlang import describe

_MATCH, _SELECTOR = "x-match", "x-selector"
_ANY, _WITH_X = ("any", "any-with-x"), ("all-with-x", "any-with-x")
_MODES = ("all", *_ANY, *_WITH_X)


@dataclass(frozen=True, slots=True)
class BindingDeclaration:
    """A binding as a client of RabbitMQ asks for it."""

    source: str
    destination: Destination
    key: str = ""
    arguments: FrozenTable = ()

    def binding(self, source: Exchange) -> Binding:
        """Return the binding to this source exchange. Raises InvalidBinding."""
        conditions: FrozenTable = ()
        match = Match.ALL
        if source.matching_type is ExchangeType.HEADERS:
            _check_match(self.arguments)
            conditions, match = header_conditions(self.arguments)
        elif source.matching_type is ExchangeType.SELECTOR:
            conditions = _selector(self.arguments)
        elif source.matching_type is ExchangeType.CONSISTENT_HASH:
            _check_weight(self.key)
        return Binding(self.source, self.destination, self.key, self.arguments, conditions, match)


def header_conditions(arguments: FrozenTable) -> tuple[FrozenTable, Match]:
    """Return the conditions on a message's headers, and whether all or any must hold."""
    mode = lookup(arguments, _MATCH)
    conditions = tuple(
        (name, value)
        for name, value in arguments
        if name != _MATCH and (mode in _WITH_X or not name.startswith("x-"))
    )
    return conditions, Match.ANY if mode in _ANY else Match.ALL


def _check_match(arguments: FrozenTable) -> None:
    for name, value in arguments:
        if name != _MATCH:
            continue
        kind, text = describe(value)
        if kind != "longstr":
            raise InvalidBinding(
                f"Invalid {_MATCH} field type {kind} (value {text}); expected longstr"
            )
        if value not in _MODES:
            raise InvalidBinding(
                f"Invalid {_MATCH} field value {text}; expected all, any, all-with-x, or any-with-x"
            )


def _selector(arguments: FrozenTable) -> FrozenTable:
    """Return the selector as a condition. Raises InvalidBinding."""
    text = lookup(arguments, _SELECTOR)
    if text is None:
        return ()
    if not isinstance(text, str):
        raise InvalidBinding(f"Invalid {_SELECTOR} field type {describe(text)[0]}")
    try:
        Selector(text)
    except InvalidSelector as error:
        raise InvalidBinding(f"Invalid {_SELECTOR}: {error}") from None
    return (("", text),)


def _check_weight(key: str) -> None:
    digits = key[1:] if key[:1] in ("+", "-") else key
    if not (digits.isascii() and digits.isdigit()):
        raise InvalidBinding(f"The binding key must be an integer: {describe(key)[1]}")
    if int(key) < 1:
        raise InvalidBinding("The binding key must be greater than 0")
    if int(key) > limits.BINDING_WEIGHT_MAX:
        raise InvalidBinding(f"The binding key must not exceed {limits.BINDING_WEIGHT_MAX}")
