"""Rates and costs of one row: medians of ours beside the peers', and the ratios."""

from collections.abc import Mapping, Sequence
from statistics import median

OURS = ("os", "fsync")

Runs = Mapping[str, Sequence[tuple[float, float]]]  # Rate and cost of each run, by contestant.


def heading(peers: Sequence[str]) -> str:
    ratios = "".join(f"{f'x {peer}':>14}" for peer in peers)
    return f"{'':50}{'messages/s':>12}{'cost, µs':>12}{ratios}"


def rows(label: str, found: Runs, peers: Sequence[str]) -> list[str]:
    """Return a line for each contestant. Those of ours have the ratios of the rates, and of the
    costs behind a slash: both are larger where we are better."""
    medians = {
        name: tuple(median(values) for values in zip(*pairs, strict=True))
        for name, pairs in found.items()
    }
    lines = []
    for name, (rate, cost) in medians.items():
        line = f"{f'{label}, {name}':50}{rate:12,.0f}{cost:12,.0f}"
        if name in OURS:
            for peer in peers:
                theirs = medians.get(peer)
                text = "-"
                if theirs is not None:
                    text = f"{_ratio(rate, theirs[0])} / {_ratio(theirs[1], cost)}"
                line += f"{text:>14}"
        lines.append(line)
    return lines


def _ratio(one: float, other: float) -> str:
    return f"{one / other:.1f}" if other else "?"
