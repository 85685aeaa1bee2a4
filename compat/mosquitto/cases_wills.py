"""Wills."""

import packets
from packets import SESSION_EXPIRY, V5, V31, V311, WILL_DELAY
from stage import Stage, only


def _with_will(stage: Stage, **how: object) -> tuple:
    heir = stage.subscriber("heir", ("will/#", 2))
    return heir, stage.client("dying", will=("will/of", "bye"), **how)


def on_the_end(stage: Stage) -> None:
    """a will is published when the connection ends without DISCONNECT"""
    heir, peer = _with_will(stage)
    peer.vanish()
    stage.see("came", heir.until(1))


def in_each_quality(stage: Stage) -> None:
    """a will has its QoS"""
    for qos in range(3):
        heir = stage.subscriber(f"heir{qos}", ("will/#", 2))
        stage.client("dying", will=("will/of", "bye"), will_qos=qos).vanish()
        stage.see(str(qos), heir.until(1))
        heir.disconnect()
        heir.end()


def not_after_leaving(stage: Stage) -> None:
    """no will after DISCONNECT"""
    heir, peer = _with_will(stage)
    peer.disconnect()
    peer.end()
    stage.see("nothing", heir.rest())


def after_a_mistake(stage: Stage) -> None:
    """a client that makes a mistake has its will published"""
    heir, peer = _with_will(stage)
    peer.send(b"\x30\xff\xff\xff\xff\x01")
    peer.end()
    stage.see("came", heir.until(1))


def on_taking_over(stage: Stage) -> None:
    """a client that is taken over has its will published"""
    heir, _ = _with_will(stage)
    stage.client("dying")
    stage.see("came", heir.rest())


def retained(stage: Stage) -> None:
    """a will may be retained"""
    stage.client("dying", will=("will/of", "bye"), will_retain=True, will_qos=1).vanish()
    listener = stage.subscriber("listener", ("other", 0))
    listener.rest()
    heir = stage.client("heir")
    heir.subscribe(("will/of", 1))
    stage.see("came", heir.until(2))


def empty(stage: Stage) -> None:
    """a will may be empty"""
    heir = stage.subscriber("heir", ("will/#", 2))
    stage.client("dying", will=("will/of", "")).vanish()
    stage.see("came", heir.until(1))


def bad_topic(stage: Stage) -> None:
    """a will with a topic that is none"""
    for topic in ("a/#", "+", ""):
        stage.see(repr(topic), stage.dial("dying", will=(topic, "bye")).end())


@only(V311, V5)
def to_dollar(stage: Stage) -> None:
    """a will with a topic that begins with $"""
    stage.see("answer", stage.dial("dying", will=("$SYS/x", "bye")).next())


def of_another_connection(stage: Stage) -> None:
    """the will of the last CONNECT counts"""
    heir = stage.subscriber("heir", ("will/#", 2))
    peer = stage.client("dying", will=("will/of", "first"))
    peer.disconnect()
    peer.end()
    stage.client("dying", will=("will/of", "second")).vanish()
    stage.see("came", heir.until(1))


def to_oneself(stage: Stage) -> None:
    """a will waits for its own session"""
    peer = stage.kept("dying", clean=True, will=("will/of", "bye"), will_qos=1)
    peer.subscribe(("will/#", 1))
    peer.next()
    peer.vanish()
    watcher = stage.client("watcher")
    watcher.rest()
    stage.see("came", stage.kept("dying").until(1))


@only(V5)
def asked_for(stage: Stage) -> None:
    """DISCONNECT with reason 0x04 publishes the will"""
    heir, peer = _with_will(stage)
    peer.disconnect(0x04)
    peer.end()
    stage.see("came", heir.until(1))


@only(V5)
def after_other_reasons(stage: Stage) -> None:
    """DISCONNECT with another reason than 0 publishes the will"""
    heir, peer = _with_will(stage)
    peer.disconnect(0x80)
    peer.end()
    stage.see("came", heir.rest())


@only(V5)
def properties(stage: Stage) -> None:
    """properties of a will come with it"""
    given = [(3, "text/plain"), (8, "r"), (38, ("k", "v"))]
    heir, peer = _with_will(stage, will_given=given)
    peer.vanish()
    (came,) = heir.until(1)
    stage.see("came", [repr(each) in came for each in given])


@only(V5)
def delay_and_session(stage: Stage) -> None:
    """a delay longer than the session: the will comes with the session's end"""
    heir, peer = _with_will(stage, will_given=[(WILL_DELAY, 600)])
    peer.vanish()
    stage.see("came", heir.until(1))


@only(V5)
def delay_is_over(stage: Stage) -> None:
    """a will comes after its delay"""
    given = [(SESSION_EXPIRY, 600)]
    heir, peer = _with_will(stage, will_given=[(WILL_DELAY, 1)], given=given)
    peer.vanish()
    stage.see("not at once", heir.rest())
    stage.see("then", heir.until(1))


@only(V5)
def back_in_time(stage: Stage) -> None:
    """who comes back before the delay is over has no will published"""
    given = [(SESSION_EXPIRY, 600)]
    heir, peer = _with_will(stage, will_given=[(WILL_DELAY, 2)], given=given)
    peer.vanish()
    heir.rest()
    back = stage.dial("dying", clean=False, given=given)
    stage.see("back", back.next())
    stage.see("nothing", heir.end(3.0))


@only(V5)
def clean_start_before_the_delay(stage: Stage) -> None:
    """a clean start before the delay is over ends the session, so the will comes"""
    given = [(SESSION_EXPIRY, 600)]
    heir, peer = _with_will(stage, will_given=[(WILL_DELAY, 600)], given=given)
    peer.vanish()
    heir.rest()
    stage.client("dying", clean=True)
    stage.see("came", heir.rest())


@only(V5)
def bad_properties(stage: Stage) -> None:
    """a will with properties that it cannot have"""
    for given in ((17, 5), (33, 1), (35, 1), (11, 1)):
        peer = stage.dial("dying", will=("w", "x"), will_given=[given])
        stage.see(str(given), peer.end())
    peer = stage.dial("dying", will=("w", "x"), will_given=[(24, 1), (24, 1)])
    stage.see("twice", peer.end())


@only(V31, V311)
def cut_off(stage: Stage) -> None:
    """CONNECT that ends in the middle of its will"""
    data = packets.connect(stage.version, "dying", will=("w/x", "bye"))[2:]
    for size in (2, 4, 6):
        peer = stage.raw()
        peer.send(packets.packet(0x10, data[:-size]))
        stage.see(str(size), peer.end())
