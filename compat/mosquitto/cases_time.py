"""What takes time: keep-alive, expiry of messages and sessions."""

import time

import packets
from packets import EXPIRY, SESSION_EXPIRY, V5, V31, V311
from stage import Stage, only


def keep_alive(stage: Stage) -> None:
    """silence of one and a half keep-alives ends the connection, and publishes the will"""
    heir = stage.subscriber("heir", ("will", 0))
    peer = stage.client("a", keep_alive=1, will=("will", "bye"))
    began = time.monotonic()
    stage.see("end", peer.end(20.0))
    stage.see("not too soon", time.monotonic() - began > 1.3)
    stage.see("will", heir.until(1))


@only(V311)
def keep_alive_kept(stage: Stage) -> None:
    """PINGREQ keeps a connection, and so does any packet"""
    peer = stage.client("a", keep_alive=1)
    for _ in range(5):
        time.sleep(0.7)
        peer.publish("a", "m")
    stage.see("open", peer.rest())
    for _ in range(4):
        time.sleep(0.7)
        stage.see("still", peer.rest())


@only(V311)
def no_keep_alive(stage: Stage) -> None:
    """keep-alive 0 lets a client be silent"""
    peer = stage.client("a", keep_alive=0)
    time.sleep(4)
    stage.see("open", peer.rest())


@only(V5)
def message_expires(stage: Stage) -> None:
    """a message that is too old is not delivered to who comes back"""
    peer = stage.kept("away", clean=True)
    peer.subscribe(("a", 1))
    peer.next()
    peer.disconnect()
    peer.end()
    writer = stage.client("writer")
    writer.publish("a", "short", 1, 1, given=[(EXPIRY, 1)])
    writer.publish("a", "long", 1, 2, given=[(EXPIRY, 600)])
    writer.rest()
    time.sleep(2.5)
    found = stage.kept("away").until(1)
    stage.see("came", [each.split("'")[-2] for each in found])


@only(V5)
def retained_expires(stage: Stage) -> None:
    """a retained message that is too old is not there"""
    writer = stage.client("writer")
    writer.publish("kept", "short", 1, 1, retain=True, given=[(EXPIRY, 1)])
    writer.rest()
    time.sleep(2.5)
    peer = stage.client("late")
    peer.subscribe(("kept", 1))
    stage.see("came", peer.rest())


@only(V5)
def session_expires(stage: Stage) -> None:
    """a session that is too old is not there"""
    peer = stage.client("away", given=[(SESSION_EXPIRY, 1)])
    peer.subscribe(("a", 1))
    peer.next()
    peer.disconnect()
    peer.end()
    time.sleep(3.5)
    peer = stage.dial("away", clean=False, given=[(SESSION_EXPIRY, 1)])
    stage.see("answer", peer.next())


@only(V5)
def session_is_there(stage: Stage) -> None:
    """a session is there before it is too old"""
    peer = stage.client("away", given=[(SESSION_EXPIRY, 30)])
    peer.disconnect()
    peer.end()
    time.sleep(1.5)
    stage.see("answer", stage.dial("away", clean=False, given=[(SESSION_EXPIRY, 1)]).next())


@only(V31, V311)
def will_at_once(stage: Stage) -> None:
    """a connection that is half closed ends, and its will is published"""
    heir = stage.subscriber("heir", ("will", 0))
    peer = stage.client("a", will=("will", "bye"))
    peer.socket.shutdown(1)
    stage.see("end", peer.end())
    stage.see("will", heir.until(1))


@only(V311)
def half_a_packet(stage: Stage) -> None:
    """half a packet, and its rest later"""
    reader = stage.subscriber("reader", ("a", 1))
    peer = stage.client("a")
    data = packets.publish(V311, "a", "hello", 1, 4)
    peer.send(data[:6])
    time.sleep(0.5)
    peer.send(data[6:])
    stage.see("answer", peer.next())
    stage.see("came", reader.until(1))
