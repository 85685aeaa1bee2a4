"""STOMP's codec: what is written is read again, and nothing that is read does any harm."""

from hypothesis import given, settings
from hypothesis import strategies as st

from entrepot.core.errors import PeerError
from entrepot.wire.stomp.frames import VERSIONS, Frame, frame_bytes, header_line
from tests.unit.wire.stomp.vectors import feed, read, reader

VECTORS = read()
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NAMES = TEXTS.filter(lambda name: name not in ("", "content-length"))
FRAMES = st.lists(st.tuples(st.dictionaries(NAMES, TEXTS, max_size=5), st.binary(max_size=50)))


@given(st.sampled_from(VERSIONS), FRAMES, st.randoms(use_true_random=False))
def test_round_trip(version: str, sent, random) -> None:
    data = b"".join(frame_bytes("SEND", headers.items(), body, version) for headers, body in sent)
    cuts = sorted(random.randrange(len(data) + 1) for _ in range(3))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    found = feed(reader(version), pieces)
    assert len(found) == len(sent)
    for frame, (headers, body) in zip(found, sent, strict=True):
        assert isinstance(frame, Frame)
        assert frame.body == body
        expected: dict[str, str] = {}
        for name, value in headers.items():
            if header_line(name, value, version):
                # In 1.0 spaces before a value do not count.
                expected[name] = value.lstrip(" ") if version == "1.0" else value
        got = {name: value for name, value in frame.headers.items() if name != "content-length"}
        assert got == expected


@settings(max_examples=500)
@given(
    st.sampled_from(VECTORS),
    st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), max_size=5),
    st.binary(max_size=10),
)
def test_mutated_bytes_are_frames_or_a_mistake(vector, changes, more: bytes) -> None:
    data = bytearray(vector.data * 2)
    for place, value in changes:
        data[place % len(data)] = value
    events = feed(reader(vector.version), [bytes(data) + more])
    assert all(isinstance(event, Frame) for event in events[:-1])
    assert not events or isinstance(events[-1], Frame | PeerError)


@given(st.binary(max_size=300), st.integers(0, 300))
def test_any_bytes_cut_anywhere_decode_alike(data: bytes, cut: int) -> None:
    whole = feed(reader("1.2"), [data])
    parts = feed(reader("1.2"), [data[:cut], data[cut:]])
    assert list(map(repr, whole)) == list(map(repr, parts))
