"""Initiator and addressee: four interactions, each run, and where it stands in the table.

Two components have a price and two want it. Who sends the first message is the initiator. If one of
the two on the other side is reached, it was addressed; if both are, nobody was.
"""

from __future__ import annotations

from collections.abc import Callable

from examples.interaction.room import Connect, eventually, room, table

SIDES = ("one", "other")
# What is sent in one interaction: who sends it, and on which side it arrives.
Trace = list[tuple[str, str]]


def request_and_reply(connect: Connect, trace: Trace) -> None:
    for side in SIDES:
        connect().serve(f"{side}.price", answering(trace, side))
    trace.append(("consumer", ""))
    assert connect().request("one.price", "IBM", timeout_s=10).value == 170


def anonymous_request_and_reply(connect: Connect, trace: Trace) -> None:
    for side in SIDES:
        connect().answer("prices.wanted", answering(trace, side))
    trace.append(("consumer", ""))
    answers = list(connect().ask("prices.wanted", "IBM", timeout_s=10, count=2))
    assert [each.value for each in answers] == [170, 170]


def callback(connect: Connect, trace: Trace) -> None:
    """Consumers have said before where to call them."""
    for side in SIDES:
        connect().notify(f"{side}.callback", hearing(trace, side))
    trace.append(("producer", ""))
    connect().put("one.callback", 170)


def event(connect: Connect, trace: Trace) -> None:
    for side in SIDES:
        hear = hearing(trace, side)
        connect().subscribe("prices.IBM", lambda handle, what, hear=hear: hear(what))
    trace.append(("producer", ""))
    connect().publish("prices.IBM", 170)


def answering(trace: Trace, side: str) -> Callable[[object], int]:
    def answer(_: object) -> int:
        trace.append(("producer", side))
        return 170

    return answer


def hearing(trace: Trace, side: str) -> Callable[[object], None]:
    return lambda _: trace.append(("consumer", side))


INTERACTIONS = {
    "request/reply": (request_and_reply, 1),
    "anonymous request/reply": (anonymous_request_and_reply, 2),
    "callback": (callback, 1),
    "event-based": (event, 2),
}


def main() -> None:
    cells: dict[tuple[str, str], str] = {}
    for name, (interact, reached) in INTERACTIONS.items():
        with room() as (_, connect):
            trace: Trace = []
            interact(connect, trace)
            eventually(lambda trace=trace, reached=reached: len(trace) > reached)
        sides = {side for _, side in trace[1:]}
        cells[trace[0][0], "direct" if len(sides) == 1 else "indirect"] = name
    rows = [
        (
            addressee,
            *(cells.get((initiator, addressee), "-") for initiator in ("consumer", "producer")),
        )
        for addressee in ("direct", "indirect")
    ]
    table(("addressee", "consumer begins", "producer begins"), rows)


if __name__ == "__main__":
    main()
