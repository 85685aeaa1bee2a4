"""Work in steps: a generator that yields where it may be interrupted, and returns its result.

A node has one event loop, so work on a hundred thousand partitions in one go would hold up all
clients. Work that grows with what a peer asks for is written in steps; `broker.turns` runs
them a few milliseconds at a time. Between two steps shared state may change: a step looks
things up by name, and does not iterate over what others change.
"""

from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")

Steps = Generator[None, None, T]


def finish(steps: Steps[T]) -> T:
    """Run all remaining steps and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result


def listed(elements: Iterable[T]) -> Steps[list[T]]:
    """Make a list, one element in each step."""
    found: list[T] = []
    for each in elements:
        found.append(each)
        yield
    return found


def parts(elements: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield the elements in lists of that size; the last may be shorter."""
    rest = iter(elements)
    while part := list(islice(rest, size)):
        yield part
