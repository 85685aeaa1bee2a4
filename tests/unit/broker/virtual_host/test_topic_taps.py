"""A topic is a subject with a memory: what is appended to it is heard by those who listen."""

from entrepot.core import batch
from entrepot.core.neutral import KEY_HEADER
from entrepot.core.record import Record
from tests.unit.broker.session.bed import Sessions, on
from tests.unit.broker.virtual_host.bed import message
from tests.unit.log.bed import simulated


def produced(*values: bytes, key: bytes | None = None) -> bytes:
    records = [Record(key, value, (("h", b"1"),)) for value in values]
    return batch.build(records, now_ms=-1)  # No timestamp.


@simulated
async def test_a_produced_batch_is_heard(bed: Sessions) -> None:
    await bed.start()
    await bed.create("plant.cold", 2)
    await bed.commit("plant.cold", produced(b"before"))
    peer = await bed.connect("c", "plant/+")
    await bed.queue("q")
    await bed.bind("amq.topic", "q", "plant.#")
    await bed.commit("plant.cold", produced(b"1", b"2", key=b"k"))
    await bed.commit("plant.cold", produced(b"3"), index=1)
    await bed.settle()
    assert peer.got == [("plant/cold", b"1"), ("plant/cold", b"2"), ("plant/cold", b"3")]
    [(envelope, _), *_] = peer.parcels[0].run.messages
    assert envelope.properties.headers == {KEY_HEADER: "k", "h": "1"}
    assert bed.bodies("q") == [b"1", b"2", b"3"]
    assert bed.values("plant.cold") == [b"before", b"1", b"2"]


@simulated
async def test_nothing_goes_round(bed: Sessions) -> None:
    """What came by a subject has been heard, also where the topic is bound to its own name."""
    await bed.start()
    for name in ("a", "b"):
        await bed.create(name)
        for pattern in ("a.#", "b.#"):
            await bed.bind("amq.topic", name, pattern)
    peer = await bed.connect("c", "#")
    await bed.commit("a", produced(b"1"))
    await bed.settle()
    await bed.tell(on("a/x", b"2"), on("b", b"3"))
    await bed.publish("", "b", message(b"4"))
    await bed.settle()
    assert peer.got == [("a", b"1"), ("a/x", b"2"), ("b", b"3"), ("b", b"4")]
    assert bed.values("a") == [b"1", b"2", b"3", b"4"]
    assert sorted(filter(None, bed.values("b"))) == [b"1", b"2", b"3", b"4"]


@simulated
async def test_nobody_listens_any_more(bed: Sessions) -> None:
    await bed.start()
    await bed.create("t")
    peer = await bed.connect("c", "t")
    await bed.commit("t", produced(b"1"))
    await bed.settle()
    await bed.do(peer.own.unsubscribe(["t"]))
    await bed.commit("t", produced(b"2"))
    await bed.settle()
    assert bed.vhost._taps is not None
    assert bed.vhost._taps._taps == {}
    again = await bed.connect("d", "t")
    await bed.commit("t", produced(b"3"))
    await bed.settle()
    assert (peer.bodies, again.bodies) == ([b"1"], [b"3"])
    await bed.delete("t")
    await bed.create("t")
    await bed.commit("t", produced(b"4"))
    await bed.settle()
    assert again.bodies == [b"3", b"4"]


@simulated
async def test_very_much_is_heard_in_turns(bed: Sessions) -> None:
    await bed.start()
    await bed.create("t")
    peer = await bed.connect("c", "t", quality=0, expiry_ms=0)
    for number in range(5):
        await bed.commit("t", produced(*[b"%d" % number] * 1_000))
    await bed.settle()
    assert len(peer.direct) == 5_000
    assert peer.direct[-1] == ("t", b"4")
