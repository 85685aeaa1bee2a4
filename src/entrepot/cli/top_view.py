"""What `entrepot top` looks like: figures as tables, for a screen of any size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from entrepot.cli.readings import Figures, Row

UNKNOWN = "-"
SNAPSHOT_ROWS = 50  # Of each table.
NAME_MAX = 60  # Characters; a longer name is cut in the middle.
_FRAME_LINES = 9  # Of the screen, besides protocols and rows.


class Column(NamedTuple):
    key: str
    title: str
    kind: str = "count"  # Or "name", "rate", "bytes", "byte_rate", "time".


class Listing(NamedTuple):
    """One of the tables that fill the screen, sorted by the first column that is no name."""

    name: str
    columns: Sequence[Column]

    @property
    def sortable(self) -> list[Column]:
        return [column for column in self.columns if column.kind != "name"]


_PROTOCOLS = Listing(
    "protocols",
    (
        Column("protocol", "protocol", "name"),
        Column("connections", "connections"),
        Column("in_s", "msg/s in", "rate"),
        Column("out_s", "msg/s out", "rate"),
        Column("bytes_in_s", "in", "byte_rate"),
        Column("bytes_out_s", "out", "byte_rate"),
        Column("answer_s", "answer", "time"),
        Column("answer_99_s", "99 %", "time"),
    ),
)
LISTINGS = (
    Listing(
        "topics",
        (
            Column("topic", "topic", "name"),
            Column("in_s", "records/s", "rate"),
            Column("records", "records"),
            Column("bytes", "size", "bytes"),
            Column("partitions", "partitions"),
        ),
    ),
    Listing(
        "queues",
        (
            Column("queue", "queue", "name"),
            Column("vhost", "vhost", "name"),
            Column("ready", "ready"),
            Column("unacked", "unacked"),
            Column("in_s", "msg/s in", "rate"),
            Column("out_s", "consumed/s", "rate"),
            Column("lost_s", "dead, dropped/s", "rate"),
            Column("consumers", "consumers"),
        ),
    ),
    Listing(
        "groups",
        (
            Column("group", "group", "name"),
            Column("topic", "topic", "name"),
            Column("lag", "lag"),
            Column("out_s", "records/s", "rate"),
            Column("partitions", "partitions"),
        ),
    ),
)


@dataclass(frozen=True, slots=True)
class View:
    """What is looked at."""

    listing: int = 0  # Which of LISTINGS.
    sort: int = 0  # Which of its sortable columns.
    first: int = 0  # The row at the top.
    is_paused: bool = False

    @property
    def shown(self) -> Listing:
        return LISTINGS[self.listing]

    @property
    def column(self) -> Column:
        return self.shown.sortable[self.sort]

    def pressed(self, key: str, page: int) -> View:
        """Return the view after a key, when a page of so many rows is shown."""
        if key in ("\t", "right"):
            return View((self.listing + 1) % len(LISTINGS), is_paused=self.is_paused)
        if key == "left":
            return View((self.listing - 1) % len(LISTINGS), is_paused=self.is_paused)
        if key in "123":
            return View(int(key) - 1, is_paused=self.is_paused)
        if key == "s":
            return replace(self, sort=(self.sort + 1) % len(self.shown.sortable), first=0)
        if key == " ":
            return replace(self, is_paused=not self.is_paused)
        steps = {"down": 1, "j": 1, "up": -1, "k": -1, "page down": page, "page up": -page}
        return replace(self, first=max(0, self.first + steps.get(key, 0)))


def rows_of(figures: Figures, view: View) -> list[Row]:
    """Return the rows of the table that is shown, those with most first."""
    rows: Sequence[Row] = getattr(figures, view.shown.name)
    key = view.column.key
    return sorted(rows, key=lambda row: -1.0 if row[key] is None else row[key], reverse=True)


def page_of(figures: Figures, height: int) -> int:
    """Return how many rows there is room for."""
    return max(3, height - _FRAME_LINES - len(figures.protocols))


def render(figures: Figures, view: View, height: int, now_s: float, problem: str = "") -> Group:
    """Return a screen of so many lines. A problem is why the figures are old."""
    rows, page = rows_of(figures, view), page_of(figures, height)
    first = min(view.first, max(0, len(rows) - page))
    titles = Text()
    for number, listing in enumerate(LISTINGS):
        name = f" [{number + 1}] {listing.name} "
        titles.append(name, style="reverse" if number == view.listing else "")
    titles.append(f"  by {view.column.title}", style="dim")
    if len(rows) > page:
        titles.append(f", {first + 1} to {first + page} of {len(rows)}", style="dim")
    keys = "tab: next list   s: sort by the next column   arrows: scroll   space: stop   q: quit"
    state = Text(keys, style="dim")
    if problem:
        state = Text(problem, style="bold red")
    elif view.is_paused:
        state = Text("stopped; space goes on", style="bold yellow")
    parts: list[RenderableType] = [
        *_head(figures.node, now_s),
        Text(),
        _table(_PROTOCOLS, figures.protocols, None),
        Text(),
        titles,
        _table(view.shown, rows[first : first + page], view.column),
        state,
    ]
    return Group(*parts)


def snapshot(figures: Figures, now_s: float) -> Group:
    """Return everything at once, for a pipe."""
    parts: list[RenderableType] = [*_head(figures.node, now_s)]
    parts += [Text(), _table(_PROTOCOLS, figures.protocols, None)]
    for number, listing in enumerate(LISTINGS):
        rows = rows_of(figures, View(number))
        if rows:
            parts += [Text(), _table(listing, rows[:SNAPSHOT_ROWS], None)]
        if len(rows) > SNAPSHOT_ROWS:
            parts.append(Text(f"and {len(rows) - SNAPSHOT_ROWS:,} more; --json has them all"))
    return Group(*parts)


def _head(node: Row, now_s: float) -> list[Text]:
    up = UNKNOWN if node["started"] is None else duration(max(0.0, now_s - node["started"]))
    processor = UNKNOWN if node["processor"] is None else f"{100 * node['processor']:.0f} %"
    first = Text(f"entrepot {node['version']}", style="bold")
    first.append(
        f"   up {up}   {node['connections']:,} connection{'s' * (node['connections'] != 1)}"
        f"   {shown('count', node['partitions'])} partitions"
        f"   {shown('count', node['queues'])} queues",
        style="not bold",
    )
    second = Text(
        f"processor {processor}   memory {shown('bytes', node['memory_bytes'])}"
        f"   disk free {shown('bytes', node['disk_free_bytes'])}"
        f"   commit {shown('time', node['commit_s'])}"
        f"   loop late {shown('time', node['loop_late_s'])} (99 %)"
    )
    wrong = [f"ALARM {each}" for each in node["alarms"]]
    if node["partitions_faulty"]:
        wrong.append(f"{node['partitions_faulty']} partitions cannot be used: entrepot status")
    if node["internal_errors"]:
        wrong.append(f"{node['internal_errors']} internal errors: see the log")
    if node["left_out"]:
        wrong.append(f"{node['left_out']:,} not listed: limits.metrics_rows")
    return [first, second, *([Text("   ".join(wrong), style="bold red")] if wrong else [])]


def _table(listing: Listing, rows: Sequence[Row], sorted_by: Column | None) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in listing.columns:
        is_name = column.kind == "name"
        title = f"{column.title} ▾" if column is sorted_by else column.title
        # Where it is narrow, names get shorter before numbers do.
        table.add_column(title, justify="left" if is_name else "right", no_wrap=not is_name)
    for row in rows:
        texts = (shown(each.kind, row[each.key]) for each in listing.columns)
        table.add_row(*(Text(text, no_wrap=True, overflow="ellipsis") for text in texts))
    return table


def shown(kind: str, value: Any) -> str:
    """Return a value as its column shows it."""
    if value is None:
        return UNKNOWN
    if kind == "name":
        return name_of(str(value))
    if kind == "rate":
        return f"{value:,.0f}" if value >= 10 or not value else f"{value:.1f}"
    if kind == "time":
        return f"{1_000 * value:,.0f} ms" if value >= 0.01 else f"{1_000 * value:.2f} ms"
    if kind == "bytes":
        return size(value)
    if kind == "byte_rate":
        return f"{size(value)}/s"
    return f"{value:,}"


def name_of(name: str) -> str:
    """Return a name that does nothing to a terminal, and is not too long."""
    safe = "".join(each if each.isprintable() else ascii(each)[1:-1] for each in name)
    half = (NAME_MAX - 1) // 2
    return safe if len(safe) <= NAME_MAX else f"{safe[:half]}…{safe[-half:]}"


def size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1_024:
            return f"{count:,.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1_024
    return f"{count:,.1f} TiB"


def duration(seconds: float) -> str:
    minutes, _ = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {int(seconds) % 60} s"
