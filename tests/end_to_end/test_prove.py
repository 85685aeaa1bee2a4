"""Each semantics over each protocol that offers it, with real clients, and everybody killed."""

from __future__ import annotations

import pytest

from entrepot.prove.semantics import OFFERS, Semantics, holds
from entrepot.prove.trial import run

ALL = [(semantics, protocol) for semantics in Semantics for protocol in OFFERS[semantics]]


@pytest.mark.usefixtures("every_durability")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("semantics", "protocol"), ALL, ids=[f"{each.value}-{over}" for each, over in ALL]
)
@pytest.mark.timeout(400)
def test_the_prediction_holds(semantics: Semantics, protocol: str) -> None:
    """Proves D-01 to D-10: producer, consumer and broker are killed, once each."""
    outcome = run(semantics, protocol)
    assert holds(semantics, outcome), outcome


@pytest.mark.slow
def test_a_broken_promise_is_seen() -> None:
    """What at-least-once leaves behind is not taken for exactly once."""
    outcome = run(Semantics.AT_LEAST_ONCE, "amqp")
    assert not holds(Semantics.EXACTLY_ONCE, outcome)
    assert not holds(Semantics.AT_MOST_ONCE, outcome)
