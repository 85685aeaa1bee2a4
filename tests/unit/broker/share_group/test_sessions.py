from uuid import UUID

import pytest

from entrepot.broker.share_group.sessions import ShareSessions
from entrepot.core import limits
from entrepot.core.steps import finish

A, B = (UUID(int=1), 0), (UUID(int=1), 1)


def test_what_was_said_is_remembered() -> None:
    sessions = ShareSessions()
    session = sessions.open("g", "m", "connection")
    assert session is not None
    assert session.epoch == 1
    assert finish(sessions.update(session, [A, B, A], []))
    assert finish(sessions.update(session, [], [A]))
    assert list(session.places) == [B]
    assert sessions.find("g", "m") is session
    sessions.close(session)
    assert sessions.find("g", "m") is None
    sessions.close(session)


def test_one_that_begins_anew_is_the_same_owner() -> None:
    sessions = ShareSessions()
    session = sessions.open("g", "m", "one")
    assert session is not None
    finish(sessions.update(session, [A], []))
    session.advance()
    session.locked[A] = None
    again = sessions.open("g", "m", "other")
    assert again is session
    assert (session.epoch, list(session.places), session.connection) == (1, [], "other")
    assert list(session.locked) == [A]


def test_epochs_go_round() -> None:
    session = ShareSessions().open("g", "m", None)
    assert session is not None
    session.epoch = 2**31 - 1
    session.advance()
    assert session.epoch == 1


def test_they_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SHARE_SESSIONS_MAX", 1)
    monkeypatch.setattr(limits, "SHARE_SESSION_PARTITIONS_MAX", 1)
    sessions = ShareSessions()
    session = sessions.open("g", "m", None)
    assert session is not None
    assert sessions.open("g", "n", None) is None
    assert not finish(sessions.update(session, [A, B], []))
    assert finish(sessions.update(session, [A], []))
    sessions.close(session)
    other = sessions.open("g", "n", None)
    assert other is not None
    assert finish(sessions.update(other, [B], []))
