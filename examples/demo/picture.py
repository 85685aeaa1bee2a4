"""The demo's result as a picture: what was computed, on top of what must come out."""

from collections import defaultdict
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path

import matplotlib as mpl
import matplotlib.dates as mdates
import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from examples.demo.simulation import BOXES, CELSIUS_MAX, MINUTES, START, Expected

Sales = dict[tuple[str, datetime], tuple[int, int, int]]
Minutes = dict[tuple[str, datetime], tuple[int, Decimal]]

# Told apart also by those who see few colours (Okabe and Ito).
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#56B4E9", "#CC79A7", "#E69F00")
MINUTE_DAYS = 1 / (24 * 60)
HALF_A_MINUTE = timedelta(seconds=30)  # What holds for a minute stands in its middle.


def draw(path: Path, expected: Expected, sales: Sales, minutes: Minutes) -> None:
    mpl.use("Agg")  # A picture needs no window.
    figure, (above, below) = plt.subplots(
        2, 1, figsize=(11, 8), sharex=True, height_ratios=(3, 2), layout="constrained"
    )
    figure.suptitle(
        f"{expected.readings:,} readings and {expected.orders:,} orders, joined and added up live",
        fontsize=14,
        fontweight="bold",
    )
    _temperatures(above, expected.minutes, minutes)
    _revenue(below, expected.sales, sales)
    below.xaxis.set_major_formatter(mdates.DateFormatter("%H:%M"))
    below.set_xlim(START, START + timedelta(minutes=MINUTES))
    below.set_xlabel(f"Time of day (UTC), {START.day} {START:%B %Y}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _temperatures(axes: Axes, expected: Minutes, computed: Minutes) -> None:
    for box, colour in zip(BOXES, COLOURS, strict=True):
        axes.plot(*_line(expected, box), color=colour, lw=1.6, label=box.capitalize())
        axes.plot(*_line(computed, box), color=colour, ls="", marker="o", ms=5)
    axes.plot([], [], color="0.4", lw=1.6, label="Line: expected")
    axes.plot([], [], color="0.4", ls="", marker="o", ms=5, label="Dot: computed by Spark")
    axes.axhline(CELSIUS_MAX, color="0.2", ls="--", lw=1, label=f"Too warm: {CELSIUS_MAX} °C")
    axes.set_ylabel("Mean temperature of a minute (°C)")
    axes.set_title("Boxes: two lids were left open", loc="left", fontsize=11)
    axes.legend(ncols=3, fontsize=9, frameon=False, loc="upper left")
    axes.set_ylim(2, 15)
    axes.grid(alpha=0.25)


def _line(minutes: Minutes, box: str) -> tuple[list[datetime], list[float]]:
    found = sorted((at, float(mean)) for (name, at), (_, mean) in minutes.items() if name == box)
    return [at + HALF_A_MINUTE for at, _ in found], [celsius for _, celsius in found]


def _revenue(axes: Axes, expected: Sales, computed: Sales) -> None:
    sums = {name: _per_minute(found) for name, found in (("e", expected), ("c", computed))}
    minutes = sorted(sums["c"])
    middle = [mdates.date2num(at + HALF_A_MINUTE) for at in minutes]
    euros = [sums["c"][at][0] / 100 for at in minutes]
    warm = [sums["c"][at][1] for at in minutes]
    axes.bar(middle, euros, width=MINUTE_DAYS * 0.8, color="#9BC4DE", label="Computed by Spark")
    wanted = sorted(sums["e"])
    axes.plot(
        [mdates.date2num(at + HALF_A_MINUTE) for at in wanted],
        [sums["e"][at][0] / 100 for at in wanted],
        ls="", marker="_", ms=16, mew=2, color="0.15", label="Expected",
    )  # fmt: skip
    for x, height, count in zip(middle, euros, warm, strict=True):
        if count:
            axes.annotate(
                f"{count}", (x, height), textcoords="offset points", xytext=(0, 5),
                ha="center", fontsize=9, color="#D55E00",
            )  # fmt: skip
    axes.plot([], [], ls="", marker="$7$", color="#D55E00", label="Orders in a warm box")
    axes.set_ylabel("Revenue of a minute (€)")
    axes.set_title("Orders", loc="left", fontsize=11)
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(0, max(euros, default=1) * 1.35)
    axes.legend(ncols=3, fontsize=9, frameon=False, loc="upper left")
    axes.grid(axis="y", alpha=0.25)


def _per_minute(sales: Sales) -> dict[datetime, tuple[int, int]]:
    """Cents, and orders at risk, of all boxes."""
    found: dict[datetime, tuple[int, int]] = defaultdict(lambda: (0, 0))
    for (_, at), (_, cents, warm) in sales.items():
        before = found[at]
        found[at] = (before[0] + cents, before[1] + warm)
    return dict(found)
