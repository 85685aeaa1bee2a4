"""The labs of spaces, groups and shared memory by name, with the sizes they have by default."""

from __future__ import annotations

from entrepot.lab import paradigms, spectrum, tuple_spaces
from entrepot.lab.table import Lab

LABS = {
    "summary": Lab(
        "seven properties of five paradigms of indirect communication",
        lambda sizes: paradigms.summary(),
    ),
    "spectrum": Lab(
        "eight models of consistency: what each guarantees, and what it costs",
        lambda sizes: spectrum.spectrum(sizes.nodes_or(10), sizes.seed),
    ),
    "xu-liskov": Lab(
        "a replicated space: the steps of write, read and take",
        lambda sizes: tuple_spaces.steps(sizes.nodes_or(3), sizes.seed),
    ),
    "replication": Lab(
        "what an operation on a replicated space costs",
        lambda sizes: tuple_spaces.costs(sizes.up_to((1, 3, 5, 9)), sizes.runs_or(50), sizes.seed),
    ),
}
