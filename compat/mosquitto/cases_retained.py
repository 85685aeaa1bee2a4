"""Retained messages."""

from packets import EXPIRY, V5, V311
from stage import Stage, only


def _retain(stage: Stage, topic: str, payload: str, qos: int = 1, **how: object) -> None:
    writer = stage.client("writer")
    writer.publish(topic, payload, qos, 1 if qos else None, retain=True, **how)
    writer.rest()
    if qos == 2:
        writer.ack("PUBREL", 1)
        writer.rest()
    writer.disconnect()
    writer.end()


def last_one(stage: Stage) -> None:
    """the last retained message comes first to a new subscriber, with its QoS"""
    for qos in range(3):
        _retain(stage, f"kept/{qos}", "old", qos)
        _retain(stage, f"kept/{qos}", "new", qos)
        peer = stage.client(f"r{qos}")
        peer.subscribe((f"kept/{qos}", 2))
        stage.see(str(qos), peer.until(2))


def lesser_quality(stage: Stage) -> None:
    """a retained message comes with the lesser QoS"""
    _retain(stage, "kept", "m", 2)
    for qos in range(3):
        peer = stage.client(f"r{qos}")
        peer.subscribe(("kept", qos))
        stage.see(str(qos), peer.until(2))


def removed(stage: Stage) -> None:
    """an empty one removes it, and is a message to those who listen"""
    _retain(stage, "kept", "m")
    listener = stage.client("listener")
    listener.subscribe(("kept", 1))
    listener.until(2)
    _retain(stage, "kept", "")
    stage.see("told", listener.until(1))
    peer = stage.client("late")
    peer.subscribe(("kept", 1))
    stage.see("late", peer.rest())


def not_retained_leaves_it(stage: Stage) -> None:
    """a message that is not retained leaves the retained one"""
    _retain(stage, "kept", "stays")
    writer = stage.client("w2")
    writer.publish("kept", "passes", 1, 1)
    writer.rest()
    peer = stage.client("late")
    peer.subscribe(("kept", 1))
    stage.see("late", peer.until(2))


def flag_to_listeners(stage: Stage) -> None:
    """those who listen already get it without the flag"""
    peer = stage.subscriber("listener", ("kept", 1))
    _retain(stage, "kept", "m")
    stage.see("came", peer.until(1))


def wildcards(stage: Stage) -> None:
    """a filter with wildcards gets all retained messages that match"""
    for name in ("kept/a", "kept/b", "kept/a/c", "other", "kept"):
        _retain(stage, name, name)
    for text in ("kept/+", "kept/#", "+", "#"):
        peer = stage.client("late")
        peer.subscribe((text, 0))
        stage.see(text, sorted(peer.rest()))
        peer.disconnect()
        peer.end()


def again_on_subscribing_again(stage: Stage) -> None:
    """subscribing again sends retained messages again"""
    _retain(stage, "kept", "m")
    peer = stage.client("late")
    for turn in ("first", "second"):
        peer.subscribe(("kept", 0))
        stage.see(turn, peer.until(2))


def not_on_resuming(stage: Stage) -> None:
    """a session that resumes does not get retained messages again"""
    _retain(stage, "kept", "m")
    peer = stage.kept("late", clean=True)
    peer.subscribe(("kept", 0))
    stage.see("first", peer.until(2))
    peer.disconnect()
    peer.end()
    stage.see("resumed", stage.kept("late").rest())


def after_the_answer(stage: Stage) -> None:
    """the retained messages of several filters come after SUBACK"""
    _retain(stage, "kept/a", "a")
    _retain(stage, "kept/b", "b")
    peer = stage.client("late")
    peer.subscribe(("kept/b", 0), ("kept/a", 0))
    found = peer.until(3)
    stage.see("first", found[0])
    stage.see("then", sorted(found[1:]))


def overlapping(stage: Stage) -> None:
    """overlapping filters in one SUBSCRIBE: how often the retained message comes"""
    _retain(stage, "kept/a", "a")
    peer = stage.client("late")
    peer.subscribe(("kept/a", 0), ("kept/#", 0))
    stage.see("came", peer.rest())


@only(V5)
def properties(stage: Stage) -> None:
    """properties of a retained message come with it"""
    given = [(3, "text/plain"), (38, ("k", "v"))]
    _retain(stage, "kept", "m", given=given)
    peer = stage.client("late")
    peer.subscribe(("kept", 1))
    found = peer.until(2)[1]
    stage.see("came", [repr(each) in found for each in given])


@only(V5)
def expires(stage: Stage) -> None:
    """a retained message with an expiry comes with what is left of it"""
    _retain(stage, "kept", "m", given=[(EXPIRY, 60)])
    peer = stage.client("late")
    peer.subscribe(("kept", 1))
    found = peer.until(2)[1]
    stage.see("left", any(f"(2, {left})" in found for left in range(55, 61)))


@only(V311, V5)
def to_dollar_names(stage: Stage) -> None:
    """retained messages of $SYS are there for who asks"""
    peer = stage.client("late")
    peer.subscribe(("$SYS/broker/version", 0))
    found = peer.until(2)
    stage.see("answer", found[0])
    stage.see("came", [each.split("'")[0] for each in found[1:]])
