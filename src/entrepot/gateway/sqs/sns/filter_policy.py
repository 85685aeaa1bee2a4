"""Filter policies: which messages a subscription wants, by their attributes or their body.

A policy is a JSON object. Every name in it must match; a name matches if one of its conditions
does: a value that is equal, or an object such as `{"prefix": "a"}`. `$or` is a list of policies of
which one must match. For bodies, objects may be nested; in a list, one element must match.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

import msgspec

from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.sqs.attributes import BINARY, NUMBER, Attribute
from entrepot.wire.sqs.errors import SqsError

Condition = Callable[[Any], bool]  # Of a value that is there.
Found = Mapping[str, Any]

_ABSENT = object()
_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "=": lambda one, other: one == other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
}


class FilterPolicy:
    """A policy that was read."""

    def __init__(self, text: str, *, is_nested: bool) -> None:
        """Read a policy. Raises SqsError."""
        if len(text) > sqs_limits.FILTER_POLICY_CHARACTERS_MAX:
            raise _wrong("it is too long")
        try:
            policy = msgspec.json.decode(text)
        except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
            raise _wrong("failed to parse JSON") from None
        self._left = sqs_limits.FILTER_CONDITIONS_MAX
        self._is_nested = is_nested
        self._wants = self._object(policy, 0)

    def wants_body(self, body: object) -> bool:
        """Return whether a body matches; only a JSON object does."""
        return isinstance(body, dict) and self._wants(body)

    def wants_attributes(self, attributes: Mapping[str, Attribute]) -> bool:
        return self._wants({name: _value(each) for name, each in attributes.items()})

    def _object(self, policy: object, depth: int) -> Callable[[Found], bool]:
        if not isinstance(policy, dict) or depth > sqs_limits.FILTER_DEPTH_MAX:
            raise _wrong("it is not an object, or too deep")
        if not policy:
            raise _wrong("an object in it is empty")
        parts = [self._part(name, rule, depth) for name, rule in policy.items()]
        return lambda found: all(part(found) for part in parts)

    def _part(self, name: str, rule: object, depth: int) -> Callable[[Found], bool]:
        if name == "$or" and isinstance(rule, list) and len(rule) > 1:
            choices = [self._object(each, depth + 1) for each in rule]
            return lambda found: any(choice(found) for choice in choices)
        if isinstance(rule, dict):
            if not self._is_nested:
                raise _wrong(f"{name[:100]!r} must be a list")
            inner = self._object(rule, depth + 1)
            return lambda found: any(
                isinstance(each, dict) and inner(each) for each in _each(found.get(name))
            )
        if not isinstance(rule, list) or not rule:
            raise _wrong(f"{name[:100]!r} must be a list with something in it")
        conditions = [self._condition(each) for each in rule]
        return lambda found: any(condition(found.get(name, _ABSENT)) for condition in conditions)

    def _condition(self, rule: object) -> Condition:
        """Return a function that is told the value of a name, or that it is absent."""
        self._left -= 1
        if self._left < 0:
            raise SqsError("FilterPolicyLimitExceeded", "The filter policy has too many conditions")
        if isinstance(rule, dict):
            if len(rule) != 1:
                raise _wrong("a condition has one word")
            ((word, operand),) = rule.items()
            if word == "exists" and isinstance(operand, bool):
                return lambda value: (value is not _ABSENT) == operand
            if word == "anything-but":
                refused = self._refused(operand)
                return lambda value: (
                    value is not _ABSENT
                    and not any(test(each) for each in _each(value) for test in refused)
                )
            return _any_of(_word(word, operand))
        if isinstance(rule, list):
            raise _wrong("a list in a list")
        return _any_of(_equals(rule))

    def _refused(self, operand: object) -> list[Condition]:
        if isinstance(operand, dict) and len(operand) == 1:
            ((word, inner),) = operand.items()
            if word in ("prefix", "suffix", "equals-ignore-case"):
                return [_word(word, each) for each in _listed(inner)]
        elif not isinstance(operand, dict):
            return [_equals(each) for each in _listed(operand)]
        raise _wrong("anything-but takes values, a prefix or a suffix")


def _any_of(test: Condition) -> Condition:
    return lambda value: value is not _ABSENT and any(test(each) for each in _each(value))


def _each(value: object) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]


def _listed(operand: object) -> list[Any]:
    found = operand if isinstance(operand, list) else [operand]
    if not found or len(found) > sqs_limits.FILTER_CONDITIONS_MAX:
        raise _wrong("anything-but has too few or too many values")
    return found


def _equals(rule: object) -> Condition:
    if isinstance(rule, bool) or rule is None:
        return lambda value: value is rule
    if isinstance(rule, int | float):
        return lambda value: _is_number(value) and value == rule
    return lambda value: isinstance(value, str) and value == rule


def _word(word: str, operand: Any) -> Condition:
    if word == "numeric" and isinstance(operand, list):
        return _numeric(operand)
    if not isinstance(operand, str):
        raise _wrong(f"{word[:100]!r} is not known, or its operand is wrong")
    if word == "prefix":
        return lambda value: isinstance(value, str) and value.startswith(operand)
    if word == "suffix":
        return lambda value: isinstance(value, str) and value.endswith(operand)
    if word == "equals-ignore-case":
        return lambda value: isinstance(value, str) and value.casefold() == operand.casefold()
    if word == "cidr":
        return _in_network(operand)
    raise _wrong(f"{word[:100]!r} is not known")


def _numeric(operand: list[Any]) -> Condition:
    pairs = [*zip(operand[::2], operand[1::2], strict=False)]
    if len(operand) not in (2, 4) or not all(
        isinstance(sign, str) and sign in _COMPARISONS and _is_number(at) for sign, at in pairs
    ):
        raise _wrong("numeric takes one or two comparisons")
    return lambda value: (
        _is_number(value) and all(_COMPARISONS[sign](value, at) for sign, at in pairs)
    )


def _in_network(operand: str) -> Condition:
    try:
        network = ip_network(operand)
    except ValueError:
        raise _wrong("cidr takes a network") from None

    def test(value: object) -> bool:
        try:
            return isinstance(value, str) and ip_address(value) in network
        except ValueError:
            return False

    return test


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value(attribute: Attribute) -> Any:
    """Return what conditions are applied to. Bytes match nothing but that they are there."""
    kind, value = attribute
    if kind.startswith(BINARY) or not isinstance(value, str):
        return b""
    if kind.startswith(NUMBER):
        number = float(value)
        return int(number) if number.is_integer() else number
    if kind == "String.Array":
        try:
            found = msgspec.json.decode(value)
        except msgspec.DecodeError:
            return value
        return found if isinstance(found, list) else value
    return value


def _wrong(text: str) -> SqsError:
    return SqsError("InvalidParameter", f"Invalid parameter: FilterPolicy: {text}")
