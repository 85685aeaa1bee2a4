"""What version 5 has added: aliases, expiry, sizes, request and response."""

import packets
from packets import ALIAS, ALIAS_MAXIMUM, EXPIRY, PACKET_SIZE, V5, V311
from stage import Stage, only


@only(V5)
def alias(stage: Stage) -> None:
    """a topic alias stands for its topic"""
    reader = stage.subscriber("reader", ("long/name", 0), ("other", 0))
    peer = stage.client("a")
    peer.publish("long/name", "1", given=[(ALIAS, 3)])
    peer.publish("", "2", given=[(ALIAS, 3)])
    peer.publish("other", "3", given=[(ALIAS, 3)])
    peer.publish("", "4", given=[(ALIAS, 3)])
    stage.see("open", peer.rest())
    stage.see("came", reader.until(4))


@only(V5)
def alias_of_each_quality(stage: Stage) -> None:
    """aliases with QoS 1 and 2"""
    reader = stage.subscriber("reader", ("name", 0))
    peer = stage.client("a")
    peer.publish("name", "1", 1, 1, given=[(ALIAS, 1)])
    peer.publish("", "2", 1, 2, given=[(ALIAS, 1)])
    peer.publish("", "3", 2, 3, given=[(ALIAS, 1)])
    stage.see("answers", peer.rest())
    peer.ack("PUBREL", 3)
    peer.rest()
    stage.see("came", reader.until(3))


@only(V5)
def alias_ends_with_the_connection(stage: Stage) -> None:
    """an alias is forgotten when the connection ends"""
    peer = stage.kept("a", clean=True)
    peer.publish("name", "1", 1, 1, given=[(ALIAS, 1)])
    peer.rest()
    peer.vanish()
    peer = stage.kept("a")
    peer.publish("", "2", 1, 1, given=[(ALIAS, 1)])
    stage.see("end", peer.end())


@only(V5)
def aliases_to_the_client(stage: Stage) -> None:
    """aliases are the client's to allow: without it there are none"""
    reader = stage.subscriber("reader", ("name", 0))
    peer = stage.client("a")
    peer.publish("name", "1")
    peer.publish("name", "2")
    peer.rest()
    stage.see("came", reader.until(2))


@only(V5)
def expiry(stage: Stage) -> None:
    """the expiry comes along, less what has passed"""
    reader = stage.subscriber("reader", ("a", 1))
    peer = stage.client("a")
    peer.publish("a", "m", 1, 1, given=[(EXPIRY, 600)])
    peer.rest()
    (came,) = reader.until(1)
    stage.see("left", any(f"(2, {left})" in came for left in range(595, 601)))


@only(V5)
def expiry_zero(stage: Stage) -> None:
    """an expiry of 0: for those who are connected"""
    reader = stage.subscriber("reader", ("a", 1))
    peer = stage.client("a")
    peer.publish("a", "m", 1, 1, given=[(EXPIRY, 0)])
    stage.see("answer", peer.rest())
    stage.see("came", len(reader.rest()))


@only(V5)
def packet_size(stage: Stage) -> None:
    """a message larger than the client accepts is not sent to it"""
    reader = stage.client("reader", given=[(PACKET_SIZE, 100)])
    reader.subscribe(("a", 1))
    reader.next()
    peer = stage.client("a")
    peer.publish("a", "x" * 200, 1, 1)
    stage.see("answer", peer.rest())
    peer.publish("a", "small", 1, 2)
    peer.rest()
    stage.see("came", [each.split(" id ")[0] + each[-10:] for each in reader.rest()])


@only(V5)
def packet_size_exactly(stage: Stage) -> None:
    """a message exactly as large as the client accepts"""
    reader = stage.client("reader", given=[(PACKET_SIZE, 50)])
    reader.subscribe(("a", 0))
    reader.next()
    peer = stage.client("a")
    for size in (44, 45, 46):  # One byte each: first, size, properties; three for the topic.
        peer.publish("a", "x" * size)
    peer.rest()
    stage.see("came", [each.split(" ")[-1] for each in reader.rest()])


@only(V5)
def request_and_response(stage: Stage) -> None:
    """a request is answered by its response topic and correlation data"""
    server = stage.subscriber("server", ("requests", 1))
    client = stage.subscriber("client", ("answers/client", 1))
    client.publish("requests", "2+2", 1, 1, given=[(8, "answers/client"), (9, b"id-1")])
    stage.see("asked", client.rest())
    (request,) = server.until(1)
    stage.see("request", "(8, 'answers/client')" in request and "(9, 'id-1')" in request)
    server.publish("answers/client", "4", 1, 1, given=[(9, b"id-1")])
    server.rest()
    stage.see("answer", client.until(1))


@only(V5)
def user_properties_of_all_packets(stage: Stage) -> None:
    """user properties in PUBACK, PUBREC, PUBREL, PUBCOMP and DISCONNECT"""
    reader = stage.subscriber("reader", ("a", 2))
    extra = b"\0" + packets.properties([(38, ("k", "v"))])
    peer = stage.client("a")
    peer.publish("a", "m", 2, 5)
    peer.rest()
    peer.send(packets.packet(0x62, b"\0\x05" + extra))
    stage.see("released", peer.rest())
    reader.until(1)
    number = reader.real(1).to_bytes(2, "big")
    reader.send(packets.packet(0x50, number + extra))
    stage.see("received", reader.rest())
    reader.send(packets.packet(0x70, number + extra))
    stage.see("completed", reader.rest())
    reader.send(packets.packet(0xE0, extra))
    stage.see("gone", reader.end())


@only(V5)
def disconnect_reasons(stage: Stage) -> None:
    """DISCONNECT with reasons and properties"""
    for reason in (0, 4, 0x80, 0x81, 0x97):
        peer = stage.client("a")
        peer.disconnect(reason, [(31, "why"), (38, ("k", "v"))])
        stage.see(hex(reason), peer.end())


@only(V5)
def alias_maximum_of_the_client(stage: Stage) -> None:
    """a client that allows aliases gets every message"""
    reader = stage.client("reader", given=[(ALIAS_MAXIMUM, 10)])
    reader.subscribe(("a", 0))
    reader.next()
    peer = stage.client("a")
    for number in range(3):
        peer.publish("a", str(number))
    peer.rest()
    stage.see("came", [each.split("'")[-2] for each in reader.until(3)])


@only(V5)
def bridge_options_of_old_clients(stage: Stage) -> None:
    """a client of 3.1.1 beside one of 5"""
    old = stage.subscriber("old", ("a", 2), version=V311)
    peer = stage.client("a")
    peer.publish("a", "m", 1, 1, given=[(EXPIRY, 60), (38, ("k", "v"))])
    peer.rest()
    stage.see("came", old.until(1))
    new = stage.subscriber("new", ("b", 2))
    old.publish("b", "m", 1, 1)
    stage.see("answer", [each for each in old.rest() if "PUBACK" in each])
    stage.see("came to new", new.until(1))
