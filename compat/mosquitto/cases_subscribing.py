"""SUBSCRIBE and UNSUBSCRIBE, their options, shared subscriptions."""

from packets import IDENTIFIER, V5, V31, V311
from stage import Stage, only


def granted(stage: Stage) -> None:
    """each QoS is granted, in order"""
    peer = stage.client("a")
    peer.subscribe(("a", 0), ("b", 1), ("c", 2), ("d/#", 1), ("+/e", 2), packet_id=65_535)
    stage.see("answer", peer.next())


def again(stage: Stage) -> None:
    """the same filter again, with another QoS, replaces the first"""
    peer = stage.client("a")
    for qos in (0, 2, 1):
        peer.subscribe(("a", qos), packet_id=qos + 1)
        stage.see(f"answer {qos}", peer.next())
    peer.publish("a", "m", 2, 9)
    peer.ack("PUBREL", 9)
    stage.see("came", _flow(peer.until(3)))


def _flow(found: list[str]) -> list[str]:
    """What came, apart from answers to what was published here."""
    return [each for each in found if each.startswith("PUBLISH")]


def same_filter_twice(stage: Stage) -> None:
    """the same filter twice in one SUBSCRIBE"""
    peer = stage.client("a")
    peer.subscribe(("a", 0), ("a", 1))
    stage.see("answer", peer.next())
    peer.publish("a", "m", 1, 9)
    stage.see("came", _flow(peer.until(2)))


def unsubscribe(stage: Stage) -> None:
    """UNSUBSCRIBE of what is there, what is not, and both"""
    peer = stage.client("a")
    peer.subscribe(("a", 0), ("b/#", 1))
    peer.next()
    peer.unsubscribe("a", "not/there", "b/+", packet_id=17)
    stage.see("answer", peer.next())
    peer.publish("a", "m")
    peer.publish("b/c", "m")
    stage.see("came", peer.rest())
    peer.unsubscribe("b/#", packet_id=18)
    stage.see("the other", peer.next())
    peer.publish("b/c", "m")
    stage.see("came then", peer.rest())


def matrix(stage: Stage) -> None:
    """published and granted QoS: the lesser is delivered, in all nine cells"""
    for wanted in range(3):
        reader = stage.subscriber(f"r{wanted}", ("matrix", wanted))
        writer = stage.client("writer")
        for qos in range(3):
            writer.publish("matrix", f"{qos}", qos, qos + 1 if qos else None)
            if qos == 2:
                writer.ack("PUBREL", 3)
            writer.rest()
        stage.see(f"granted {wanted}", reader.until(3))


def overlapping(stage: Stage) -> None:
    """filters that overlap: one message, at the best QoS"""
    reader = stage.subscriber("reader", ("a/#", 0), ("a/+", 2), ("a/b", 1))
    writer = stage.client("writer")
    writer.publish("a/b", "m", 2, 1)
    writer.ack("PUBREL", 1)
    writer.rest()
    stage.see("came", reader.rest())


def order_of_one_topic(stage: Stage) -> None:
    """messages of one topic come in order, all QoS of 1"""
    reader = stage.subscriber("reader", ("order", 1))
    writer = stage.client("writer")
    for number in range(1, 16):
        writer.publish("order", str(number), 1, number)
    stage.see("answers", writer.until(15))
    stage.see("came", reader.until(15))


@only(V5)
def no_local(stage: Stage) -> None:
    """no local: what one publishes oneself does not come back"""
    peer = stage.client("a")
    peer.subscribe(("mine", 0x05))
    stage.see("answer", peer.next())
    peer.publish("mine", "own", 1, 3)
    stage.see("own", peer.rest())
    other = stage.client("b")
    other.publish("mine", "other", 1, 3)
    other.rest()
    stage.see("another's", peer.until(1))


@only(V5)
def retain_as_published(stage: Stage) -> None:
    """retain as published keeps the flag"""
    peer = stage.client("a")
    peer.subscribe(("kept/#", 0x09), ("plain/#", 0x01))
    peer.next()
    other = stage.client("b")
    for topic in ("kept/a", "plain/a"):
        other.publish(topic, "m", 1, 3, retain=True)
        other.rest()
        stage.see(topic, peer.until(1))


@only(V5)
def retain_handling(stage: Stage) -> None:
    """retain handling 0, 1 and 2, for new and for old subscriptions"""
    writer = stage.client("writer")
    writer.publish("handled", "m", 1, 1, retain=True)
    writer.rest()
    for handling in range(3):
        peer = stage.client(f"h{handling}")
        for turn in ("new", "old"):
            peer.subscribe(("handled", 1 | handling << 4))
            stage.see(f"{handling} {turn}", [each.replace("id 2", "id 1") for each in peer.rest()])


@only(V5)
def identifiers(stage: Stage) -> None:
    """subscription identifiers come with what they matched"""
    peer = stage.client("a")
    peer.subscribe(("a/b", 0), given=[(IDENTIFIER, 7)])
    peer.next()
    writer = stage.client("writer")
    writer.publish("a/b", "m")
    writer.rest()
    stage.see("one", peer.rest())
    peer.subscribe(("a/b", 0), given=[(IDENTIFIER, 268_435_455)])
    peer.next()
    writer.publish("a/b", "m")
    writer.rest()
    stage.see("another", peer.rest())
    peer.subscribe(("a/b", 0))
    peer.next()
    writer.publish("a/b", "m")
    writer.rest()
    stage.see("none", peer.rest())


@only(V5)
def identifiers_of_retained(stage: Stage) -> None:
    """subscription identifiers come with retained messages, too"""
    writer = stage.client("writer")
    writer.publish("kept", "m", 1, 1, retain=True)
    writer.rest()
    peer = stage.client("a")
    peer.subscribe(("kept", 1), given=[(IDENTIFIER, 7)])
    stage.see("came", peer.until(2))


@only(V5)
def identifiers_of_overlapping(stage: Stage) -> None:
    """identifiers of all filters that match"""
    peer = stage.client("a")
    for number, text in enumerate(("a/#", "a/b", "c"), 1):
        peer.subscribe((text, 1), packet_id=number, given=[(IDENTIFIER, number)])
        peer.next()
    writer = stage.client("writer")
    writer.publish("a/b", "m", 1, 1)
    writer.rest()
    found = peer.rest()
    stage.see("identifiers", sorted(n for n in (1, 2, 3) if f"(11, {n})" in " ".join(found)))
    stage.see("how many", len(found))


@only(V311, V5)
def shared(stage: Stage) -> None:
    """a shared subscription: each message goes to one of the group"""
    group = [stage.client(f"g{number}") for number in range(3)]
    for peer in group:
        peer.subscribe((f"$share/of-{stage.version}/jobs/#", 1))
        stage.see("granted", peer.next())
    alone = stage.subscriber("alone", ("jobs/#", 1))
    writer = stage.client("writer")
    for number in range(12):
        writer.publish("jobs/x", str(number), 1, number + 1)
        writer.rest()
    found = [_flow(peer.rest()) for peer in group]
    stage.see("each", [len(each) for each in found])
    stage.see("all", sorted(each.split("'")[1] for some in found for each in some))
    stage.see("alone", len(alone.until(12)))


@only(V311, V5)
def two_groups(stage: Stage) -> None:
    """two groups get each message once each"""
    peers = [stage.client(f"g{number}") for number in range(4)]
    for number, peer in enumerate(peers):
        peer.subscribe((f"$share/two-{stage.version}-{number % 2}/jobs", 1))
        peer.next()
    writer = stage.client("writer")
    for number in range(4):
        writer.publish("jobs", str(number), 1, number + 1)
        writer.rest()
    counts = [len(_flow(peer.rest())) for peer in peers]
    stage.see("groups", [counts[0] + counts[2], counts[1] + counts[3]])


@only(V311, V5)
def shared_exactly_once(stage: Stage) -> None:
    """a shared subscription at QoS 2: the lesser of both is delivered, and released"""
    peer = stage.client("reader")
    peer.subscribe((f"$share/exact-{stage.version}/jobs", 2))
    stage.see("granted", peer.next())
    writer = stage.client("writer")
    for qos in (0, 1, 2):
        writer.publish("jobs", f"{qos}", qos, 5)
        writer.rest()
        writer.ack("PUBREL", 5) if qos == 2 else None
        stage.see(f"came {qos}", peer.until(1))
    peer.ack("PUBREC", 2)
    stage.see("released", peer.until(1))
    peer.ack("PUBCOMP", 2)
    peer.ack("PUBACK", 1)
    stage.see("nothing more", peer.rest())


@only(V311, V5)
def shared_stays(stage: Stage) -> None:
    """what a shared subscription has told one of QoS 2 comes to it again, and not to another"""
    filter = f"$share/stays-{stage.version}/jobs"
    one = stage.kept("one")
    one.subscribe((filter, 2))
    one.next()
    writer = stage.client("writer")
    writer.publish("jobs", "m", 2, 5)
    writer.rest()
    writer.ack("PUBREL", 5)
    stage.see("came", one.until(1))
    other = stage.subscriber("other", (filter, 2))
    one.vanish()
    stage.see("to another", other.rest())
    again = stage.kept("one")
    stage.see("again", again.until(1))
    again.ack("PUBREC", 1)
    stage.see("released", again.until(1))


@only(V5)
def shared_and_retained(stage: Stage) -> None:
    """a shared subscription gets no retained messages"""
    writer = stage.client("writer")
    writer.publish("jobs", "kept", 1, 1, retain=True)
    writer.rest()
    peer = stage.client("a")
    peer.subscribe(("$share/none-retained/jobs", 1))
    stage.see("came", peer.rest())


@only(V311, V5)
def leave_the_group(stage: Stage) -> None:
    """who unsubscribes from a group gets nothing, the others all"""
    peers = [stage.client(f"g{number}") for number in range(2)]
    for peer in peers:
        peer.subscribe((f"$share/left-{stage.version}/jobs", 1))
        peer.next()
    peers[0].unsubscribe(f"$share/left-{stage.version}/jobs")
    stage.see("answer", peers[0].next())
    writer = stage.client("writer")
    for number in range(4):
        writer.publish("jobs", str(number), 1, number + 1)
        writer.rest()
    stage.see("each", [len(_flow(peer.rest())) for peer in peers])


@only(V5)
def user_properties(stage: Stage) -> None:
    """SUBSCRIBE and UNSUBSCRIBE with user properties"""
    peer = stage.client("a")
    peer.subscribe(("a", 1), given=[(38, ("x", "y")), (38, ("x", "y"))])
    stage.see("subscribe", peer.next())
    peer.unsubscribe("a", given=[(38, ("x", "y"))])
    stage.see("unsubscribe", peer.next())


@only(V31, V311)
def many_filters(stage: Stage) -> None:
    """500 filters in one SUBSCRIBE"""
    peer = stage.client("a")
    peer.subscribe(*((f"many/{number}", number % 3) for number in range(500)))
    stage.see("answer", peer.next())
