"""What a dead letter says of the deaths of its message."""

from datetime import UTC, datetime

from entrepot.broker.queue.dead_letter import (
    EXPIRED,
    MAXLEN,
    REJECTED,
    Cause,
    DeadLetters,
    dead_letters,
)
from entrepot.broker.queue.message import Run
from entrepot.core import limits
from entrepot.core.faults import Uncaught
from entrepot.core.message import Envelope
from entrepot.gateway.amqp.format import AMQP
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.properties import PropertyView
from entrepot.wire.amqp.table import Int64, Timestamp, Value, type_name
from tests.unit.broker.queue.bed import envelope, properties

TIME_MS = 1_700_000_000_999


def died(run: Run, queue: str, reason: str, key: str | None = None) -> list[DeadLetters]:
    cause = Cause(queue, reason, TIME_MS, "dlx", key)
    return list(dead_letters(run, cause, Uncaught()))


def one(head: bytes, queue: str, reason: str, key: str | None = None) -> tuple[bytes, list[str]]:
    """The properties of a letter, and where it must not go."""
    [some] = died(Run(5, [(envelope(head), b"body")]), queue, reason, key)
    return some.run.messages[0][0].head, list(some.avoided)


def headers(head: bytes) -> dict[str, Value]:
    return dict(PropertyView(head).get("headers"))


def test_the_first_death() -> None:
    head = properties({"a": 1, "CC": ["copy"]}, expiration="70", message_id="m", delivery_mode=2)
    letter, avoided = one(head, "q", EXPIRED)
    assert avoided == ["q"]
    found = headers(letter)
    assert found.pop("x-death") == [
        {
            "count": 1,
            "reason": "expired",
            "queue": "q",
            "time": TIME_MS // 1_000,
            "exchange": "x",
            "routing-keys": ["key", "copy"],
            "original-expiration": "70",
        }
    ]
    assert found == {
        "a": 1,
        "CC": ["copy"],
        "x-first-death-reason": "expired",
        "x-first-death-queue": "q",
        "x-first-death-exchange": "x",
        "x-last-death-reason": "expired",
        "x-last-death-queue": "q",
        "x-last-death-exchange": "x",
    }
    view = PropertyView(letter)
    assert view.get("expiration") is None
    assert (view.get("message_id"), view.get("delivery_mode")) == ("m", 2)


def test_the_types_that_clients_insist_on() -> None:
    letter, _ = one(properties(), "q", REJECTED)
    [death] = headers(letter)["x-death"]
    assert isinstance(death["count"], Int64)
    assert isinstance(death["time"], Timestamp)
    assert type_name(death["routing-keys"]) == "array"
    assert "original-expiration" not in death


def test_deaths_are_counted_by_queue_and_reason_and_the_newest_is_first() -> None:
    head = properties()
    for queue, reason in (("a", REJECTED), ("b", EXPIRED), ("a", REJECTED), ("a", MAXLEN)):
        head, _ = one(head, queue, reason)
    found = headers(head)
    told = [(each["queue"], each["reason"], each["count"]) for each in found["x-death"]]
    assert told == [("a", "maxlen", 1), ("a", "rejected", 2), ("b", "expired", 1)]
    assert (found["x-first-death-queue"], found["x-first-death-reason"]) == ("a", "rejected")
    assert (found["x-last-death-queue"], found["x-last-death-reason"]) == ("a", "maxlen")
    assert isinstance(found["x-death"][1]["count"], Int64)


def test_a_time_stays_that_of_the_first_death_there() -> None:
    head, _ = one(properties(expiration="9"), "q", REJECTED)
    cause = Cause("q", REJECTED, TIME_MS + 60_000, "dlx", None)
    [some] = dead_letters(Run(0, [(Envelope("dlx", "key", head, AMQP), b"")]), cause, Uncaught())
    [told] = headers(some.run.messages[0][0].head)["x-death"]
    assert (told["time"], told["count"]) == (TIME_MS // 1_000, 2)
    assert (told["exchange"], told["original-expiration"]) == ("x", "9")
    assert datetime.fromtimestamp(told["time"], UTC).year == 2023


def test_a_key_of_the_queue_replaces_the_message_s_keys() -> None:
    head = envelope(properties({"CC": ["copy"]}))
    [some] = died(Run(0, [(head, b"")]), "q", REJECTED, "k")
    [(letter, _)] = some.run.messages
    assert (letter.exchange, letter.subject, some.run.time_ms) == ("dlx", "k", TIME_MS)
    found = headers(letter.head)
    assert "CC" not in found
    assert found["x-death"][0]["routing-keys"] == ["key", "copy"]


def test_letters_of_one_run_keep_their_own_keys() -> None:
    heads = [Envelope("x", key, properties(), AMQP) for key in ("a", "b", "a")]
    [some] = died(Run(0, [(head, b"") for head in heads]), "q", REJECTED)
    letters_made = [letter for letter, _ in some.run.messages]
    assert [(each.exchange, each.subject) for each in letters_made] == [
        ("dlx", "a"),
        ("dlx", "b"),
        ("dlx", "a"),
    ]
    deaths = [headers(letter.head)["x-death"][0] for letter in letters_made]
    assert [death["routing-keys"] for death in deaths] == [["a"], ["b"], ["a"]]


def test_circles_end_unless_somebody_rejected_on_the_way() -> None:
    head, avoided = one(properties(), "a", EXPIRED)
    assert avoided == ["a"]
    head, avoided = one(head, "b", MAXLEN)
    assert avoided == ["b", "a"]
    head, avoided = one(head, "c", REJECTED)
    assert avoided == []
    head, avoided = one(head, "a", EXPIRED)
    assert avoided == ["a"]  # Not b: it is behind the rejection.


def test_letters_with_different_histories_are_different_runs() -> None:
    old, _ = one(properties(), "other", EXPIRED)
    new, newer = properties(), properties(message_id="n")
    heads = [envelope(each) for each in (new, newer, old, new)]
    messages = [(head, str(number).encode()) for number, head in enumerate(heads, 1)]
    found = died(Run(0, messages), "q", EXPIRED)
    told = [([bytes(body) for _, body in some.run.messages], some.avoided) for some in found]
    assert told == [([b"1", b"2"], ["q"]), ([b"3"], ["q", "other"]), ([b"4"], ["q"])]


def test_a_header_that_is_not_ours_does_no_harm() -> None:
    for strange in ("text", 5, ["text", {"queue": 1}, {"reason": "expired"}], {"queue": "q"}):
        letter, avoided = one(properties({"x-death": strange, "CC": "copy"}), "q", EXPIRED)
        [death] = headers(letter)["x-death"]
        assert (death["count"], death["routing-keys"], avoided) == (1, ["key"], ["q"])
    wrong = {"queue": "q", "reason": "expired", "count": "many"}
    letter, _ = one(properties({"x-death": [wrong]}), "q", EXPIRED)
    assert headers(letter)["x-death"][0]["count"] == 1


def test_only_the_newest_deaths_are_told() -> None:
    """Somebody rejects the message now and then, so it may go on for ever."""
    head, kept = properties(expiration="9"), limits.DEAD_LETTER_DEATHS_MAX
    for number in range(3 * kept):
        head, avoided = one(head, f"q{number}", REJECTED if number % kept == 0 else EXPIRED)
    deaths = headers(head)["x-death"]
    assert [each["queue"] for each in deaths] == [f"q{2 * kept + n}" for n in range(kept)][::-1]
    assert avoided == [f"q{2 * kept + n}" for n in range(1, kept)][::-1]
    assert headers(head)["x-first-death-queue"] == "q0"


def test_names_as_long_as_they_may_be_fit_into_a_frame() -> None:
    head = properties()
    for number in range(limits.DEAD_LETTER_DEATHS_MAX + 1):
        name = f"{number:0255}"
        run = Run(5, [(Envelope("x" * 255, "k" * 255, head, AMQP), b"body")])
        [some] = died(run, name, EXPIRED, "k" * 255)
        head = some.run.messages[0][0].head
    assert len(head) < amqp_limits.FRAME_BYTES_MAX - limits.KIB


def test_who_died_as_often_as_is_told_and_was_never_rejected_goes_no_further() -> None:
    head, kept = properties(), limits.DEAD_LETTER_DEATHS_MAX
    for number in range(kept):
        [some] = died(Run(5, [(envelope(head), b"body")]), f"q{number}", EXPIRED)
        head = some.run.messages[0][0].head
        assert some.may_go is (number < kept - 1)
    [some] = died(Run(5, [(envelope(head), b"body")]), "last", REJECTED)
    assert some.may_go
