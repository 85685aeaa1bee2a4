"""The rows of `stalls` about groups: many members, many topics, many partitions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from bench import wide
from bench.members import ClassicMember, Crowd, Share, is_divided
from entrepot.core.steps import parts

if TYPE_CHECKING:
    from bench.stalls import Rows, Stage, Work


def rows() -> Rows:
    """As in `stalls`. Later rows use what earlier ones made."""
    yield "300 regular expressions of a group", _regular_expressions
    yield "2,000 members of a modern group", _modern_members
    yield "Ten members that want different topics", _different_wishes
    yield "ConsumerGroupDescribe, 2,000 members", _describe_members
    yield "10,000 members of a classic group", _classic_members
    yield "ShareGroupHeartbeat, 20,000 topics", _share_heartbeat
    yield "ShareFetch, 69,300", _share_fetch
    yield "ShareAcknowledge, 49,500", _share_acknowledge
    yield "ShareAcknowledge, 60,000 ranges", _share_ranges
    yield "disconnect with 29,700 locked", _share_disconnect


def _regular_expressions(stage: Stage) -> Work:
    asked = [wide.join_by_regex(f"regex-{i}", f".*{i}.*") for i in range(300)]

    def work() -> None:
        stage.kafka.socket.sendall(b"".join(asked))
        for _ in asked:
            stage.kafka.answer()

    return work


def _modern_members(stage: Stage) -> Work:
    return _members(stage, "many", ["topic-.*"] * 2_000)


def _different_wishes(stage: Stage) -> Work:
    return _members(stage, "different", [f"topic-.*[{i}{i + 1}].*" for i in range(9)])


def _members(stage: Stage, group: str, regexes: list[str]) -> Work:
    """They join, and go where the broker wants them."""
    members = [(f"member-{i}", regex) for i, regex in enumerate(regexes)]

    def ask(requests: list[bytes]) -> list[int]:
        epochs: list[int] = []
        for some in parts(requests, 100):  # Not more than the broker would read.
            stage.kafka.socket.sendall(b"".join(some))
            epochs += [wide.epoch_of(stage.kafka.answer()) for _ in some]
        return epochs

    def work() -> None:
        epochs = ask([wide.join_by_regex(group, regex, name) for name, regex in members])
        for _ in range(3):
            time.sleep(0.3)  # A large group is not divided for each of those that join at once.
            beats = zip(members, epochs, strict=True)
            epochs = ask([wide.group_heartbeat(group, name, epoch) for (name, _), epoch in beats])

    return work


def _describe_members(stage: Stage) -> Work:
    return lambda: stage.ask(wide.describe_modern(["many"]))


def _classic_members(stage: Stage) -> Work:
    count = 10_000
    share = Share("classic", "wide-0", count, 45_000)
    crowd = Crowd(stage.broker, 3.0)
    stage.closing.callback(crowd.close)

    def work() -> None:
        for _ in range(count):
            crowd.add(ClassicMember, share)
        crowd.run_until(lambda: is_divided(crowd.members, count), 60, "dividing")
        crowd.close()  # Later rows have as many clients, and there is an end to descriptors.

    return work


_SHARING = "share"  # Of which the offsets were altered: there is no room for another.
_SHARER = "AAAAAAAAAAAAAAAAAAAAAA"


def _share_heartbeat(stage: Stage) -> Work:
    return lambda: wide.epoch_of(
        stage.ask(wide.share_heartbeat("share-narrow", _SHARER, stage.names))
    )


def _share_fetch(stage: Stage) -> Work:
    names = [name for name, _ in stage.wide]
    wide.epoch_of(stage.ask(wide.share_heartbeat(_SHARING, _SHARER, names)))
    ids = stage.topic_ids(names)
    topics = [(ids[name], [(i, ()) for i in range(count)]) for name, count in stage.wide]
    stage.ask(wide.produce_to_all(stage.wide[:3], wide.small_batch()))
    request = wide.share_fetch(_SHARING, _SHARER, 0, topics)
    return lambda: stage.ask(request)


def _share_acknowledge(stage: Stage) -> Work:
    ids = stage.topic_ids([name for name, _ in stage.wide])
    accepted = [(0, 0, b"\1")]
    # Of more, the request would have too many elements.
    topics = [(ids[name], [(i, accepted) for i in range(count)]) for name, count in stage.wide[:5]]
    request = wide.share_acknowledge(_SHARING, _SHARER, 1, topics)
    return lambda: stage.ask(request)


def _share_ranges(stage: Stage) -> Work:
    ids = stage.topic_ids(["wide-0"])
    ranges = [(i, i, b"\1") for i in range(60_000)]
    request = wide.share_acknowledge(_SHARING, _SHARER, 2, [(ids["wide-0"], [(0, ranges)])])
    return lambda: stage.ask(request)


def _share_disconnect(stage: Stage) -> Work:
    ids = stage.topic_ids([name for name, _ in stage.wide])
    topics = [(ids[name], [(i, ()) for i in range(count)]) for name, count in stage.wide]
    stage.ask(wide.produce_to_all(stage.wide[:3], wide.small_batch()))
    other = stage.broker.connect()
    for epoch in range(3):  # No request gets more than 10,000 records.
        other.socket.sendall(wide.share_fetch(_SHARING, _SHARER, epoch, topics))
        other.answer()
        topics = []

    def work() -> None:
        other.socket.close()
        time.sleep(1)

    return work
