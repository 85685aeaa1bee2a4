"""The handshake, logging in, virtual hosts, channels."""

import struct

from pika import spec
from raw import PROTOCOL, StartOk, method_frame
from stage import Stage


def capabilities(stage: Stage) -> None:
    """what the broker says about itself"""
    raw = stage.raw()
    start = raw.start()
    stage.see("version", (start.version_major, start.version_minor))
    mechanisms = start.mechanisms
    text = mechanisms if isinstance(mechanisms, str) else mechanisms.decode()
    stage.see("mechanisms", sorted({"PLAIN", "AMQPLAIN"} & set(text.split())))
    stage.see("capabilities", start.server_properties["capabilities"])
    stage.see("facts", sorted({"product", "version", "platform", "capabilities",
                               "cluster_name"} & set(start.server_properties)))  # fmt: skip
    tune = raw.log_in()
    stage.see("tune", (tune.channel_max, tune.frame_max, tune.heartbeat))


def other_protocol(stage: Stage) -> None:
    """another protocol is answered with the one that is spoken"""
    for header in (b"AMQP\2\1\0\0", b"AMQP\0\0\x09\x02", b"GET / HTTP/1.1\r\n\r\n"):
        raw = stage.raw()
        raw.send(header)
        stage.see(repr(header), raw.read())


def bad_login(stage: Stage) -> None:
    """a wrong password, an unknown user, an unknown mechanism"""
    for what, mechanism, response in (
        ("password", "PLAIN", b"\0guest\0wrong"),
        ("user", "PLAIN", b"\0nobody\0guest"),
        ("mechanism", "SECRET", b"\0guest\0guest"),
        ("nothing", "PLAIN", b""),
    ):
        raw = stage.raw()
        raw.start()
        raw.ask(0, _start_ok(mechanism, response))
        stage.see(what, raw.answer())


def bad_login_to_an_old_client(stage: Stage) -> None:
    """a wrong password from a client that does not know the close"""
    raw = stage.raw()
    raw.start()
    said = raw.log_in(response=b"\0guest\0wrong", capabilities={})
    stage.see("said", said)


def amqplain(stage: Stage) -> None:
    """AMQPLAIN"""
    for password in (b"guest", b"wrong"):
        table = b""
        for name, value in ((b"LOGIN", b"guest"), (b"PASSWORD", password)):
            table += bytes((len(name),)) + name + b"S" + struct.pack(">I", len(value)) + value
        raw = stage.raw()
        raw.start()
        said = raw.log_in("AMQPLAIN", table)
        stage.see(password.decode(), _named(said))


def virtual_hosts(stage: Stage) -> None:
    """virtual hosts that are not there"""
    for vhost in ("/", "nothing", "", "x" * 255):
        raw = stage.raw()
        raw.start()
        raw.log_in()
        stage.see(vhost[:10], _named(raw.open(vhost)))


# RabbitMQ writes it into its log and hangs up.
REFUSED = {
    "larger frames": "Close 530 NOT_ALLOWED - negotiated frame_max = 262144 is higher than the "
    "maximum allowed value (131072)",
    "frames too small": "Close 530 NOT_ALLOWED - negotiated frame_max = 4095 is lower than the "
    "minimum allowed value (4096)",
}


def tuning(stage: Stage) -> None:
    """limits that the client asks for"""
    for what, channel_max, frame_max in (
        ("smaller", 10, 4096),
        ("larger frames", 2047, 262144),
        ("frames too small", 2047, 4095),
    ):
        raw = stage.raw()
        raw.start()
        raw.log_in()
        raw.ask(0, spec.Connection.TuneOk(channel_max, frame_max, 0))
        raw.ask(0, spec.Connection.Open("/"))
        stage.see(what, _named(raw.read()), {"gone": REFUSED.get(what)})


def too_many_channels(stage: Stage) -> None:
    """a channel beyond what was agreed on"""
    raw = stage.raw()
    raw.start()
    raw.log_in()
    assert isinstance(raw.open(channel_max=10), spec.Connection.OpenOk)
    for number in range(1, 11):
        raw.ask(number, spec.Channel.Open())
        last = raw.read()
    stage.see("the last", _named(last))
    raw.ask(11, spec.Channel.Open())
    stage.see("one more", raw.answer())


def channels_again(stage: Stage) -> None:
    """a channel's number can be used again after its close"""
    raw = stage.raw().connect()
    for _ in range(3):
        raw.ask(1, spec.Channel.Close(200, "", 0, 0))
        stage.see("closed", _named(raw.read()))
        raw.ask(1, spec.Channel.Open())
        stage.see("opened", _named(raw.read()))


def channel_twice(stage: Stage) -> None:
    """a channel that is open already"""
    raw = stage.raw().connect()
    raw.ask(1, spec.Channel.Open())
    stage.see("said", raw.answer())


def channel_not_open(stage: Stage) -> None:
    """a method on a channel that is not open"""
    raw = stage.raw().connect()
    raw.ask(7, spec.Basic.Qos())
    stage.see("said", raw.answer())


def channel_closed_by_broker(stage: Stage) -> None:
    """after its close a channel hears nothing until the client has agreed"""
    raw = stage.raw().connect()
    raw.ask(1, spec.Queue.Declare(queue=stage.name("nothing"), passive=True))
    raw.ask(1, spec.Queue.Declare(queue=stage.name("made")))
    stage.see("said", raw.answer())
    raw.ask(1, spec.Channel.CloseOk())
    raw.ask(1, spec.Channel.Open())
    stage.see("open again", _named(raw.read()))
    stage.see("the second one was not heard", stage.exists(stage.name("made")))


def both_close(stage: Stage) -> None:
    """both sides close a channel at once"""
    raw = stage.raw().connect()
    raw.ask(1, spec.Basic.Ack(99))
    raw.ask(1, spec.Channel.Close(200, "", 0, 0))
    said = sorted([_named(raw.read()).split()[0], _named(raw.read()).split()[0]])
    stage.see("said", said)


def close(stage: Stage) -> None:
    """closing a connection"""
    raw = stage.raw().connect()
    raw.ask(0, spec.Connection.Close(200, "bye", 0, 0))
    stage.see("said", _named(raw.read()))


def close_with_open_channels(stage: Stage) -> None:
    """closing a connection gives back what its channels had"""
    queue = stage.queue()
    stage.publish(queue, *"abc")
    raw = stage.raw().connect()
    raw.consume(queue, 3)
    raw.ask(0, spec.Connection.Close(200, "bye", 0, 0))
    stage.see("back", stage.await_count(queue, 3))


def update_secret(stage: Stage) -> None:
    """connection.update-secret"""
    raw = stage.raw().connect()
    raw.ask(0, spec.Connection.UpdateSecret("new", "because"))
    stage.see("said", _named(raw.read()))


def nowait(stage: Stage) -> None:
    """no answer when none is asked for"""
    queue = stage.name("q")
    stage._queues.append(queue)
    raw = stage.raw().connect()
    raw.ask(1, spec.Queue.Declare(queue=queue, nowait=True))
    raw.ask(1, spec.Queue.Bind(queue=queue, exchange="amq.direct", routing_key="k", nowait=True))
    raw.ask(1, spec.Basic.Consume(queue=queue, consumer_tag="t", nowait=True))
    raw.ask(1, spec.Basic.Cancel("t", nowait=True))
    raw.ask(1, spec.Confirm.Select(nowait=True))
    raw.ask(1, spec.Queue.Purge(queue=queue, nowait=True))
    raw.ask(1, spec.Basic.Qos(prefetch_count=1))
    stage.see("first answer", _named(raw.read()))
    stage.see("declared", stage.exists(queue))
    raw.ask(1, spec.Queue.Delete(queue=queue, nowait=True))
    raw.ask(1, spec.Queue.Declare(queue=stage.name("nothing"), passive=True, nowait=True))
    stage.see("refused all the same", raw.answer())


def obedience(stage: Stage) -> None:
    """methods before their time"""
    for what, parts in {
        "open before start-ok": [PROTOCOL, method_frame(0, spec.Connection.Open("/"))],
        "a channel's method before start-ok": [PROTOCOL, method_frame(1, spec.Channel.Open())],
    }.items():
        raw = stage.raw()
        raw.send(*parts)
        raw.read()
        stage.see(what, raw.answer().split(" (")[0][:60])


def many_connections(stage: Stage) -> None:
    """thirty connections, and a channel on each"""
    raws = [stage.raw().connect() for _ in range(30)]
    for raw in raws:
        raw.ask(1, spec.Basic.Qos(prefetch_count=1))
    stage.see("answers", {_named(raw.read()) for raw in raws} == {"QosOk"})


def _start_ok(mechanism: str, response: bytes) -> object:
    capabilities = {"authentication_failure_close": True}
    return StartOk({"capabilities": capabilities}, mechanism, response)


def _named(said: object) -> str:
    """The method's name, or what a close says."""
    if isinstance(said, spec.Connection.Close | spec.Channel.Close):
        return f"{type(said).__name__} {said.reply_code} {said.reply_text}"
    return said if isinstance(said, str | bytes) else type(said).__name__
