"""Who is listed, and who is sent away."""

from entrepot.broker.sessions import ConnectionFacts, Sessions


class Fake:
    def __init__(self) -> None:
        self.closed: list[str] = []

    def facts(self) -> ConnectionFacts:
        return ConnectionFacts("a -> b", "a", "guest", "/", "AMQP 0-9-1", 0)

    def close(self, reason: str) -> None:
        self.closed.append(reason)


def test_those_who_are_there() -> None:
    sessions = Sessions()
    first, second = Fake(), Fake()
    sessions.add(first)
    sessions.add(second)
    assert (list(sessions), len(sessions)) == ([first, second], 2)
    for session in sessions:
        sessions.remove(session)  # They may go while somebody looks.
    sessions.remove(first)
    assert list(sessions) == []


def test_who_has_gone_since_is_left_out() -> None:
    sessions = Sessions()
    first, second = Fake(), Fake()
    sessions.add(first)
    sessions.add(second)
    listed = iter(sessions)
    assert next(listed) is first
    sessions.remove(second)
    assert list(listed) == []


def test_sent_away_until_accepted_again() -> None:
    sessions = Sessions()
    before, during, after = Fake(), Fake(), Fake()
    sessions.add(before)
    sessions.send_away("maintenance")
    sessions.add(during)
    assert not sessions.is_accepting
    sessions.accept()
    sessions.add(after)
    assert sessions.is_accepting
    assert (before.closed, during.closed, after.closed) == (["maintenance"], ["maintenance"], [])
