"""Sessions: what is kept while a client is away, and in which order it comes back."""

from packets import RECEIVE_MAXIMUM, SESSION_EXPIRY, V5, V31, V311
from stage import Peer, Stage, only


def _away(stage: Stage, *filters: tuple[str, int]) -> None:
    """A session with these subscriptions, whose client is away."""
    peer = stage.kept("away", clean=True)
    peer.subscribe(*filters)
    peer.next()
    peer.disconnect()
    peer.end()


def _publish(stage: Stage, topic: str, *payloads: str, qos: int = 1) -> None:
    writer = stage.client("writer")
    for number, payload in enumerate(payloads, 1):
        writer.publish(topic, payload, qos, number if qos else None)
        writer.rest()
        if qos == 2:
            writer.ack("PUBREL", number)
            writer.rest()
    writer.disconnect()
    writer.end()


def present(stage: Stage) -> None:
    """session present: new, resumed, and started clean"""
    how = {"given": [(SESSION_EXPIRY, 600)]} if stage.is_5 else {}
    for turn, clean in (("first", False), ("resumed", False), ("clean", True), ("after", False)):
        peer = stage.dial("a", clean=clean, **how)
        stage.see(turn, peer.next())
        peer.disconnect()
        peer.end()


def nothing_is_kept(stage: Stage) -> None:
    """a clean session ends with its connection"""
    peer = stage.subscriber("a", ("a", 1))
    peer.disconnect()
    peer.end()
    _publish(stage, "a", "m")
    peer = stage.dial("a", clean=False)
    stage.see("answer", peer.next())
    stage.see("rest", peer.rest())


def waiting(stage: Stage) -> None:
    """messages of QoS 1 and 2 wait for a client that is away, in order"""
    _away(stage, ("a", 2))
    _publish(stage, "a", "1", "2", "3", qos=1)
    _publish(stage, "a", "4", "5", qos=2)
    peer = stage.kept("away")
    stage.see("came", peer.until(5))


def quality_zero_is_not_kept(stage: Stage) -> None:
    """messages of QoS 0 do not wait"""
    _away(stage, ("a", 2), ("b", 0))
    _publish(stage, "a", "0", qos=0)
    _publish(stage, "b", "1", qos=1)
    _publish(stage, "a", "2", qos=1)
    stage.see("came", stage.kept("away").until(1))


def sent_again(stage: Stage) -> None:
    """what was not acknowledged comes again, with DUP, under the same identifier"""
    _away(stage, ("a", 1))
    _publish(stage, "a", "1", "2", "3")
    peer = stage.kept("away")
    stage.see("first", peer.until(3))
    peer.ack("PUBACK", 2)
    peer.rest()
    peer.vanish()
    peer = stage.kept("away")
    stage.see("again", peer.until(2))


def release_is_sent_again(stage: Stage) -> None:
    """PUBREL that was not answered comes again"""
    _away(stage, ("a", 2))
    _publish(stage, "a", "1", "2", qos=2)
    peer = stage.kept("away")
    stage.see("first", peer.until(2))
    peer.ack("PUBREC", 1)
    stage.see("release", peer.until(1))
    peer.vanish()
    peer = stage.kept("away")
    stage.see("again", sorted(peer.until(2)))
    peer.ack("PUBCOMP", 1)
    peer.ack("PUBREC", 2)
    stage.see("the other", peer.rest())


def what_was_received_is_remembered(stage: Stage) -> None:
    """a packet of QoS 2 that is sent again on another connection is published once"""
    reader = stage.subscriber("reader", ("a", 0))
    peer = stage.kept("away", clean=True)
    peer.publish("a", "m", 2, 7)
    stage.see("received", peer.rest())
    peer.vanish()
    peer = stage.kept("away")
    peer.publish("a", "m", 2, 7, dup=True)
    stage.see("again", peer.rest())
    peer.ack("PUBREL", 7)
    stage.see("released", peer.rest())
    stage.see("came", reader.rest())


def release_on_another_connection(stage: Stage) -> None:
    """PUBREL on another connection completes what was received"""
    reader = stage.subscriber("reader", ("a", 0))
    peer = stage.kept("away", clean=True)
    peer.publish("a", "m", 2, 7)
    peer.rest()
    peer.vanish()
    peer = stage.kept("away")
    peer.ack("PUBREL", 7)
    stage.see("released", peer.rest())
    stage.see("came", reader.rest())


def subscriptions_are_kept(stage: Stage) -> None:
    """subscriptions of a session are there when it resumes"""
    _away(stage, ("a/#", 1), ("b", 2))
    peer = stage.kept("away")
    _publish(stage, "a/x", "1")
    _publish(stage, "b", "2", qos=2)
    stage.see("came", peer.until(2))


def unsubscribed_while_waiting(stage: Stage) -> None:
    """what waits before UNSUBSCRIBE still comes"""
    _away(stage, ("a", 1))
    _publish(stage, "a", "1")
    peer = stage.kept("away")
    peer.unsubscribe("a")
    stage.see("came", sorted(peer.until(2)))


def taken_over(stage: Stage) -> None:
    """who takes a session over gets what was not acknowledged"""
    first = stage.kept("away", clean=True)
    first.subscribe(("a", 1))
    first.next()
    _publish(stage, "a", "1", "2")
    stage.see("first", first.until(2))
    second = stage.kept("away")
    stage.see("second", second.until(2))
    stage.see("end of the first", first.end())


def clean_start_drops(stage: Stage) -> None:
    """a clean start drops what waits and the subscriptions"""
    _away(stage, ("a", 1))
    _publish(stage, "a", "1")
    peer = stage.kept("away", clean=True)
    stage.see("nothing", peer.rest())
    _publish(stage, "a", "2")
    stage.see("nothing then", peer.rest())


@only(V311, V5)
def two_sessions(stage: Stage) -> None:
    """two sessions keep their own copies"""
    for name in ("a", "b"):
        peer = stage.kept(name, clean=True)
        peer.subscribe(("t", 1))
        peer.next()
        peer.disconnect()
        peer.end()
    _publish(stage, "t", "1", "2")
    first = stage.kept("a")
    stage.see("a", first.until(2))
    stage.see("b", stage.kept("b").until(2))


@only(V5)
def another_version_resumes(stage: Stage) -> None:
    """a session of version 5 is resumed in 3.1.1"""
    _away(stage, ("a", 1))
    writer = stage.client("writer")
    writer.publish("a", "m", 1, 1, given=[(38, ("k", "v"))])
    writer.rest()
    peer = stage.dial("away", V311, clean=False)
    stage.see("answer", peer.next())
    stage.see("came", peer.until(1))


@only(V5)
def expiry_on_leaving(stage: Stage) -> None:
    """DISCONNECT may end the session, or make it last"""
    peer = stage.kept("away", clean=True)
    peer.disconnect(0, [(SESSION_EXPIRY, 0)])
    peer.end()
    peer = stage.dial("away", clean=False, given=[(SESSION_EXPIRY, 600)])
    stage.see("ended", peer.next())
    peer.disconnect(0, [(SESSION_EXPIRY, 0xFFFFFFFF)])
    peer.end()
    peer = stage.dial("away", clean=False)
    stage.see("lasts", peer.next())


def _window(stage: Stage, peer: Peer) -> None:
    found = peer.until(2)
    stage.see("two", found)
    peer.ack("PUBACK", 1)
    stage.see("one more", peer.until(1))
    peer.ack("PUBACK", 2)
    peer.ack("PUBACK", 3)
    stage.see("the rest", peer.until(1))


@only(V5)
def receive_maximum(stage: Stage) -> None:
    """no more than the client's receive maximum are sent unanswered"""
    _away(stage, ("a", 1))
    _publish(stage, "a", "1", "2", "3", "4")
    _window(stage, stage.kept("away", given=[(RECEIVE_MAXIMUM, 2)]))


@only(V5)
def receive_maximum_of_quality_two(stage: Stage) -> None:
    """QoS 2 counts against the receive maximum until PUBCOMP"""
    _away(stage, ("a", 2))
    _publish(stage, "a", "1", "2", qos=2)
    peer = stage.kept("away", given=[(RECEIVE_MAXIMUM, 1)])
    stage.see("one", peer.until(1))
    peer.ack("PUBREC", 1)
    stage.see("released", peer.rest())
    peer.ack("PUBCOMP", 1)
    stage.see("the other", peer.until(1))


@only(V5)
def quality_zero_passes(stage: Stage) -> None:
    """QoS 0 does not count against the receive maximum"""
    peer = stage.client("a", given=[(RECEIVE_MAXIMUM, 1)])
    peer.subscribe(("one", 1), ("zero", 0))
    peer.next()
    _publish(stage, "one", "1", "2")
    _publish(stage, "zero", "3", "4", qos=0)
    stage.see("came", sorted(peer.until(3)))


@only(V31, V311)
def offline_shared_group(stage: Stage) -> None:
    """twelve messages to a shared group that is offline"""
    peer = stage.kept("away", clean=True)
    peer.subscribe((f"$share/offline-{stage.version}/jobs", 1))
    peer.next()
    peer.disconnect()
    peer.end()
    _publish(stage, "jobs", *map(str, range(12)))
    found = stage.kept("away").until(12)
    stage.see("came", [each.split("'")[1] for each in found])
