"""Work in steps: a generator that yields where it may be interrupted, and returns its result.

A node is one loop, so whoever looks at a hundred thousand partitions in one go keeps everybody
waiting. Work that grows with what a peer asks for is written in steps; `broker.turns` runs
them a few milliseconds at a time. Between two steps anything may have changed: a step looks
things up by name and keeps no position in what others change.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """Do all that is left, at once."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def listed(elements: Iterable[T]) -> Steps[list[T]]:
    """Make a list, one element a step."""
    found: list[T] = []
    for each in elements:
        found.append(each)
        yield
    return found


def parts(elements: Iterable[T], size: int) -> Iterator[list[T]]:
    """The elements in lists of that size, but for the last."""
    rest = iter(elements)
    while part := list(islice(rest, size)):
        yield part
