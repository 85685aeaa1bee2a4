"""Pictures of what a lab found. matplotlib is of the extra `demo`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from entrepot.lab.table import Picture, Table


def save(tables: Sequence[Table], path: str) -> int:
    """Draw all pictures of the tables into one file; its ending says the format. Return how many.

    Raises ModuleNotFoundError without matplotlib, OSError and ValueError if the file cannot be.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    drawn = [(table, picture) for table in tables for picture in table.pictures]
    if not drawn:
        return 0
    columns = min(2, len(drawn))
    rows = -(-len(drawn) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(6.5 * columns, 4.2 * rows), squeeze=False, layout="constrained"
    )
    for (table, picture), axis in zip(drawn, axes.flat, strict=False):
        axis.set_title(table.title.partition(":")[0], fontsize=10)
        _draw(axis, picture)
    for axis in axes.flat[len(drawn) :]:
        axis.axis("off")
    try:
        figure.savefig(path, dpi=120)
    finally:
        plt.close(figure)
    return len(drawn)


def _draw(axis: Any, picture: Picture) -> None:
    for curve in picture.curves:
        if picture.are_bars:
            steps = [b - a for a, b in zip(curve.x, curve.x[1:], strict=False)]
            axis.bar(curve.x, curve.y, width=0.8 * min(steps, default=1), label=curve.label)
        elif curve.is_expected:
            axis.plot(curve.x, curve.y, "--", label=curve.label)
        else:
            axis.plot(curve.x, curve.y, "o-", markersize=4, label=curve.label)
    if picture.x_is_log:
        axis.set_xscale("log")
    if picture.y_is_log:
        axis.set_yscale("log")
    axis.set_xlabel(picture.x)
    axis.set_ylabel(picture.y)
    axis.grid(visible=True, alpha=0.3)
    axis.legend(fontsize=8)
