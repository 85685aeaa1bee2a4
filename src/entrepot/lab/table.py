"""What a lab found: a table for people, rows for programs, curves for a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Curve:
    label: str
    x: Sequence[float]
    y: Sequence[float]
    is_expected: bool = False  # Of the lecture, not measured: drawn as a line without marks.


@dataclass(frozen=True, slots=True)
class Picture:
    x: str
    y: str
    curves: Sequence[Curve]
    x_is_log: bool = False
    y_is_log: bool = False
    are_bars: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """`columns` are names for programs; people read them with spaces."""

    name: str
    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
    notes: Sequence[str] = ()
    pictures: Sequence[Picture] = field(default_factory=tuple)

    def objects(self) -> list[dict[str, Any]]:
        return [
            {"lab": self.name, **dict(zip(self.columns, row, strict=True))} for row in self.rows
        ]

    def text(self) -> str:
        """Return the table as aligned columns, with its title above and its notes below."""
        heads = [column.replace("_", " ") for column in self.columns]
        digits = [_digits([row[index] for row in self.rows]) for index in range(len(heads))]
        cells = [heads, *(list(map(_shown, row, digits)) for row in self.rows)]
        widths = [max(len(row[index]) for row in cells) for index in range(len(heads))]
        is_number = [
            all(isinstance(row[index], int | float) or row[index] is None for row in self.rows)
            for index in range(len(heads))
        ]
        lines = [
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(row, widths, is_number, strict=True)
            ).rstrip()
            for row in cells
        ]
        return "\n".join([self.title, "", *lines, *(["", *self.notes] if self.notes else [])])


def _digits(values: Sequence[Any]) -> int:
    """Return how many digits after the point a column needs: more if something in it is small."""
    return 6 if any(isinstance(value, float) and 0 < abs(value) < 0.1 for value in values) else 3


def _shown(value: Any, digits: int) -> str:
    if value is None:
        return "-"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a lab is to be."""

    seed: int
    nodes: int | None = None  # None means: the lab's own.
    runs: int | None = None

    def nodes_or(self, count: int) -> int:
        return self.nodes or count

    def runs_or(self, count: int) -> int:
        return self.runs or count

    def up_to(self, counts: tuple[int, ...]) -> tuple[int, ...]:
        """Return the counts below the nodes that were asked for, and those."""
        if self.nodes is None:
            return counts
        return (*(count for count in counts if count < self.nodes), self.nodes)


@dataclass(frozen=True, slots=True)
class Lab:
    line: str
    run: Callable[[Sizes], Table]
