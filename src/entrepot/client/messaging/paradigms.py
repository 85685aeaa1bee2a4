"""What the paradigms of indirect communication can do here: capabilities, beside the lectures'.

A capability is a fact about the code, and tests look at each of them on a broker.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import Enum
from typing import Any


class Uncoupled(Enum):
    NO = "no"
    YES = "yes"
    POSSIBLE = "possible"  # By an option.


class Style(Enum):
    COMMUNICATION = "communication-based"
    STATE = "state-based"


class Pattern(Enum):
    ONE_TO_ONE = "1-to-1"
    ONE_TO_MANY = "1-to-many"
    BOTH = "1-to-1 or 1-to-many"


class Scales(Enum):
    LIMITED = "limited"  # All of it is in one partition, or at every client.
    POSSIBLE = "possible"  # It is spread over nodes.


class Associative(Enum):
    NO = "no"
    YES = "yes"
    BY_CONTENT = "content-based only"


@dataclass(frozen=True, slots=True)
class Capabilities:
    space_uncoupled: Uncoupled
    time_uncoupled: Uncoupled
    style: Style
    pattern: Pattern
    intent: str
    scalability: Scales
    associative: Associative


GROUPS, EVENTS, QUEUES = "groups", "publish/subscribe", "message queues"
MEMORY, SPACES = "shared memory", "tuple spaces"

OURS = {
    GROUPS: Capabilities(
        Uncoupled.YES,
        Uncoupled.POSSIBLE,  # In a durable group, `after` a position.
        Style.COMMUNICATION,
        Pattern.ONE_TO_MANY,
        "reliable distributed computing",
        Scales.LIMITED,  # One partition orders all of it.
        Associative.NO,
    ),
    EVENTS: Capabilities(
        Uncoupled.YES,
        Uncoupled.POSSIBLE,  # By a durable subscription.
        Style.COMMUNICATION,
        Pattern.ONE_TO_MANY,
        "dissemination of information, integration, mobile systems",
        Scales.POSSIBLE,
        Associative.BY_CONTENT,
    ),
    QUEUES: Capabilities(
        Uncoupled.YES,
        Uncoupled.YES,
        Style.COMMUNICATION,
        Pattern.ONE_TO_ONE,
        "dissemination of information, integration, transactions",
        Scales.POSSIBLE,
        Associative.BY_CONTENT,  # `get` by a selector, which is more than the lecture asks for.
    ),
    MEMORY: Capabilities(
        Uncoupled.YES,
        Uncoupled.YES,
        Style.STATE,
        Pattern.ONE_TO_MANY,
        "parallel and distributed computation",
        Scales.LIMITED,  # Every client has all of it.
        Associative.NO,
    ),
    SPACES: Capabilities(
        Uncoupled.YES,
        Uncoupled.YES,
        Style.STATE,
        Pattern.BOTH,
        "parallel and distributed computation, mobile systems",
        Scales.POSSIBLE,  # By partitions.
        Associative.YES,
    ),
}
# Where the lectures' table says something else.
LECTURE: dict[str, dict[str, Enum]] = {
    QUEUES: {"associative": Associative.NO},
    SPACES: {"scalability": Scales.LIMITED},
}
PROPERTIES = tuple(field.name for field in fields(Capabilities))


def said(paradigm: str, name: str, *, by_lecture: bool = False) -> str:
    """Return what a property is: ours, or the lectures'."""
    value: Any = getattr(OURS[paradigm], name)
    if by_lecture:
        value = LECTURE.get(paradigm, {}).get(name, value)
    return str(value.value if isinstance(value, Enum) else value)
