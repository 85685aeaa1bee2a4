"""The lectures' summary of indirect communication: their word on each paradigm, and ours below."""

from __future__ import annotations

from entrepot.client.messaging.paradigms import LECTURE, OURS, PROPERTIES, said
from entrepot.lab.table import Table


def summary() -> Table:
    rows = []
    for name in PROPERTIES:
        for whose in ("lecture", "here"):
            words = [said(each, name, by_lecture=whose == "lecture") for each in OURS]
            rows.append((name.replace("_", " "), whose, *words))
    return Table(
        "summary",
        "Indirect communication: seven properties of five paradigms",
        ("property", "whose", *OURS),
        rows,
        tuple(
            f"{paradigm}, {name}: '{said(paradigm, name, by_lecture=True)}' in the lecture, "
            f"'{said(paradigm, name)}' here."
            for paradigm, differences in LECTURE.items()
            for name in differences
        ),
    )
