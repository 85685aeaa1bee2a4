"""CONNECT in its variants, and what it is answered."""

import packets
from packets import PACKET_SIZE, RECEIVE_MAXIMUM, V5, V31, V311
from stage import Stage, only


def plain(stage: Stage) -> None:
    """an ordinary client connects and leaves"""
    peer = stage.dial("a")
    stage.see("answer", peer.next())
    peer.disconnect()
    stage.see("end", peer.end())


def no_identifier(stage: Stage) -> None:
    """a client without an identifier, clean"""
    peer = stage.dial("")
    stage.see("answer", peer.next())
    stage.see("rest", peer.end() if stage.version == V31 else peer.rest())


@only(V311, V5)
def no_identifier_kept(stage: Stage) -> None:
    """a client without an identifier that wants a session"""
    peer = stage.dial("", clean=False)
    stage.see("answer", peer.next())
    stage.see("rest", peer.end() if stage.version == V311 else peer.rest())


@only(V5)
def assigned_identifier(stage: Stage) -> None:
    """version 5 is told the identifier that it was given"""
    peer = stage.dial("")
    stage.see("assigned", "(18, " in peer.next(chosen=()))
    peer = stage.dial("named")
    stage.see("not assigned", "(18, " in peer.next(chosen=()))


def long_identifier(stage: Stage) -> None:
    """an identifier of 23 characters, and one of 200"""
    for size in (23, 200):
        peer = stage.dial("x" * size)
        stage.see(f"{size}", peer.next())


def strange_identifiers(stage: Stage) -> None:
    """identifiers with spaces, slashes, wildcards and other alphabets"""
    for client_id in ("a b", "a/b", "größe", "шина", "a+#"):
        stage.see(client_id, stage.dial(client_id).next())


def user_and_password(stage: Stage) -> None:
    """a user and a password where none is asked for"""
    stage.see("both", stage.dial("a", user="u", password="p").next())
    stage.see("empty", stage.dial("b", user="", password="").next())
    stage.see("only a user", stage.dial("c", user="u").next())


def password_alone(stage: Stage) -> None:
    """a password without a user"""
    peer = stage.dial("a", password="p")
    stage.see("answer", peer.end())


@only(V311)
def unknown_levels(stage: Stage) -> None:
    """levels of the protocol that there are not"""
    for level in (0, 1, 2, 6, 9, 127):
        peer = stage.dial("a", level=level)
        stage.see(f"level {level}", peer.end())


@only(V311)
def names_of_the_protocol(stage: Stage) -> None:
    """names of the protocol that there are not"""
    for name in ("", "MQ", "mqtt", "MQTT5", "HTTP/1.1"):
        peer = stage.dial("a", name=name)
        stage.see(repr(name), peer.end())


def name_of_another_version(stage: Stage) -> None:
    """the name of another version of the protocol"""
    name = "MQTT" if stage.version == V31 else "MQIsdp"
    stage.see("answer", stage.dial("a", name=name).end())


@only(V311, V5)
def reserved_flag(stage: Stage) -> None:
    """the reserved flag of CONNECT is set"""
    stage.see("answer", stage.dial("a", flags=0x03).end())


def will_flags(stage: Stage) -> None:
    """flags of a will where there is none, and QoS 3"""
    for flags in (0x0A, 0x12, 0x22, 0x1A):
        stage.see(hex(flags), stage.dial("a", flags=flags).end())
    peer = stage.dial("b", will=("w", "x"), will_qos=3)
    stage.see("qos 3", peer.end())


def second_connect(stage: Stage) -> None:
    """a second CONNECT"""
    peer = stage.client("a")
    peer.send(packets.connect(stage.version, "a"))
    stage.see("end", peer.end())


def fixed_header_flags(stage: Stage) -> None:
    """flags in the first byte of CONNECT"""
    data = packets.connect(stage.version, "a")
    for flags in (1, 2, 8):
        peer = stage.raw()
        peer.send(bytes((data[0] | flags,)) + data[1:])
        stage.see(str(flags), peer.end())


def too_much(stage: Stage) -> None:
    """bytes behind the end of CONNECT's content"""
    data = packets.connect(stage.version, "a")
    peer = stage.raw()
    peer.send(packets.packet(0x10, data[2:] + b"more"))
    stage.see("end", peer.end())


def cut_off(stage: Stage) -> None:
    """CONNECT whose texts are longer than the packet"""
    data = packets.connect(stage.version, "abcdef")[2:]
    for size in (len(data) - 2, 12, 9, 5, 1):
        peer = stage.raw()
        peer.send(packets.packet(0x10, data[:size]))
        stage.see(f"{size - len(data)} bytes" if size > 12 else str(size), peer.end())


def empty(stage: Stage) -> None:
    """CONNECT without content"""
    peer = stage.raw()
    peer.send(packets.packet(0x10, b""))
    stage.see("end", peer.end())


def identifier_not_text(stage: Stage) -> None:
    """identifiers that are not UTF-8, or have NUL"""
    for client_id in (b"\xff", b"a\0b", b"\xed\xa0\x80"):
        peer = stage.raw()
        peer.send(packets.connect(stage.version, client_id))
        stage.see(repr(client_id), peer.end())


def byte_by_byte(stage: Stage) -> None:
    """CONNECT and SUBSCRIBE that come a byte at a time"""
    peer = stage.raw()
    stage._numbers["a"] = {}
    for byte in packets.connect(stage.version, "a"):
        peer.send(bytes((byte,)))
    stage.see("answer", peer.next())
    for byte in packets.subscribe(stage.version, ("a/b", 1)):
        peer.send(bytes((byte,)))
    stage.see("subscribed", peer.next())


def all_at_once(stage: Stage) -> None:
    """CONNECT, SUBSCRIBE and PUBLISH in one piece, without waiting"""
    peer = stage.dial("a")
    peer.subscribe(("at/once", 1))
    peer.publish("at/once", "m", 1, 7)
    stage.see("all", sorted(peer.until(4)))


@only(V5)
def twice_the_same_property(stage: Stage) -> None:
    """CONNECT with a property twice"""
    for given in ([(17, 5), (17, 5)], [(33, 5), (33, 5)], [(34, 5), (34, 5)], [(25, 1), (25, 1)]):
        stage.see(str(given[0][0]), stage.dial("a", given=given).end())


@only(V5)
def values_that_must_not_be(stage: Stage) -> None:
    """CONNECT with values of properties that are not allowed"""
    for given in ((RECEIVE_MAXIMUM, 0), (PACKET_SIZE, 0), (25, 2), (23, 2)):
        stage.see(str(given), stage.dial("a", given=[given]).end())


@only(V5)
def properties_of_others(stage: Stage) -> None:
    """CONNECT with properties of other packets"""
    for given in ((2, 5), (3, "t"), (11, 1), (35, 1), (36, 1), (31, "why"), (18, "id")):
        stage.see(str(given), stage.dial("a", given=[given]).end())


@only(V5)
def unknown_property(stage: Stage) -> None:
    """CONNECT with a property that there is not"""
    for kind in (0, 4, 43, 127):
        stage.see(str(kind), stage.dial("a", given=[(kind, b"\0")]).end())


@only(V5)
def authentication(stage: Stage) -> None:
    """CONNECT with a method of authentication that nobody knows, and data without a method"""
    stage.see("method", stage.dial("a", given=[(21, "NONE-SUCH")]).end())
    stage.see("data", stage.dial("a", given=[(22, b"data")]).end())


@only(V5)
def properties_cut_off(stage: Stage) -> None:
    """CONNECT whose properties are longer than it is"""
    head = packets.text("MQTT") + bytes((5, 2, 0, 60))
    for properties in (b"\x05\x11\0\0", b"\xff\xff\xff\xff\x01", b"\x80"):
        peer = stage.raw()
        peer.send(packets.packet(0x10, head + properties))
        stage.see(repr(properties), peer.end())


@only(V5)
def all_properties(stage: Stage) -> None:
    """CONNECT with every property that it may have"""
    given = [
        (17, 10), (33, 20), (39, 100_000), (34, 5), (25, 1), (23, 1), (38, ("a", "b")),
        (38, ("a", "c")),
    ]  # fmt: skip
    stage.see("answer", stage.dial("a", given=given).next())


@only(V5)
def auth_unasked(stage: Stage) -> None:
    """AUTH on a connection that did not begin with it"""
    peer = stage.client("a")
    peer.send(packets.packet(0xF0, b"\x18\0"))
    stage.see("end", peer.end())


def take_over(stage: Stage) -> None:
    """a client takes over from another one of its name"""
    first = stage.client("a")
    stage.see("answer", stage.dial("a").next())
    stage.see("the first one", first.end())


def take_over_by_another_version(stage: Stage) -> None:
    """a client of version 3.1.1 takes over from one of another version"""
    first = stage.client("a")
    stage.see("answer", stage.dial("a", V311).next())
    stage.see("the first one", first.end())
