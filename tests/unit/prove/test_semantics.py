"""When a prediction holds, and when not."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from entrepot.cli.prove import prove
from entrepot.prove import trial
from entrepot.prove.semantics import OFFERS, PREDICTIONS, Outcome, Semantics, holds

ALL = tuple(range(5))
LOSES, REPEATS, LATE = (0, 1, 3, 4), (0, 1, 2, 2, 3, 4), (0, 2, 1, 3, 4)


def outcome(done: Sequence[int], delivered: Sequence[int] = ALL, hidden_s: float = 3.0) -> Outcome:
    return Outcome(5, delivered, done, hidden_s)


def test_counting() -> None:
    found = outcome((0, 3, 1, 1, 4), (0, 3, 3, 1, 4))
    assert (found.lost, found.duplicated, found.reordered) == (1, 1, 2)
    assert (found.redelivered, found.came_late) == (1, 1)


def test_what_a_consumer_took_with_it_is_lost_and_the_counts_add_up() -> None:
    """Delivered and lost are no opposites: 4 of 5 came, and one of them was never worked on."""
    found = outcome((0, 1, 3), (0, 1, 1, 2, 3))
    assert (len(found.delivered), found.redelivered, found.unfinished, found.lost) == (5, 1, 1, 2)
    assert found.lost == found.sent - (len(found.delivered) - found.redelivered) + found.unfinished


@pytest.mark.parametrize(
    ("semantics", "good", "bad"),
    [
        (Semantics.AT_MOST_ONCE, [LOSES], [ALL, REPEATS, (0, 1, 1)]),
        (Semantics.AT_LEAST_ONCE, [REPEATS], [ALL, LOSES, (0, 1, 1)]),
        (Semantics.EXACTLY_ONCE, [ALL, LATE], [LOSES, REPEATS]),
        (Semantics.TRANSACTION, [ALL], [LOSES, REPEATS]),
        (Semantics.TIMEOUT, [REPEATS], [ALL, LOSES]),
    ],
)
def test_what_holds(
    semantics: Semantics, good: Sequence[Sequence[int]], bad: Sequence[Sequence[int]]
) -> None:
    assert all(holds(semantics, outcome(done)) for done in good)
    assert not any(holds(semantics, outcome(done)) for done in bad)


def test_hidden_for_no_time_is_not_hidden() -> None:
    assert not holds(Semantics.TIMEOUT, outcome(REPEATS, hidden_s=0.1))


def test_numbers_must_have_had_something_to_repair() -> None:
    came = (0, 2, 1, 3, 3, 4)
    assert holds(Semantics.NUMBERED, outcome(ALL, came))
    assert not holds(Semantics.NUMBERED, outcome(ALL, ALL))
    assert not holds(Semantics.NUMBERED, outcome(LATE, came))


def test_all_are_predicted_and_offered() -> None:
    assert [*PREDICTIONS] == [*OFFERS] == [*Semantics]


@pytest.mark.parametrize(("done", "code"), [(ALL, 0), (REPEATS, 1)])
def test_the_command_fails_with_a_prediction(
    done: Sequence[int], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trial, "run", lambda semantics, protocol: outcome(done))
    chosen = ["--semantics", "exactly-once", "--protocol", "amqp", "--json"]
    result = CliRunner().invoke(prove, chosen)
    assert result.exit_code == code
    said = json.loads(result.stdout)
    assert (said["semantics"], said["protocol"], said["lost"]) == ("exactly-once", "amqp", 0)
    assert said["holds"] == ("NO" if code else "yes")


def test_what_nobody_offers() -> None:
    result = CliRunner().invoke(prove, ["--semantics", "timeout", "--protocol", "mqtt"])
    assert result.exit_code == 2
    assert "none of these protocols offers that" in result.output
