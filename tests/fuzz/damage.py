"""What happens to a frame on its way from right to almost right."""

from collections.abc import Callable
from random import Random
from struct import pack

from tests.fuzz.session import Damaged

Damage = Callable[[Random, bytearray], None]

EDGES = (
    0,
    1,
    2,
    3,
    127,
    128,
    255,
    256,
    32_767,
    32_768,
    65_535,
    65_536,
    2**31 - 1,
    2**31,
    2**32 - 1,
)
TEXTS = (b"\xff\xfe", b"\xc3\x28", b"\xed\xa0\x80", b"\0", b"%00", b"\xf0\x9f\x92\xa9", b"../")


def damaged(random: Random, frame: bytes, first: int = 0) -> Damaged:
    """Damage it once or a few times, from that byte on."""
    head, data = frame[:first], bytearray(frame[first:])
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        random.choice(_KINDS)(random, data)
    return Damaged(head + bytes(data))


def _flip_a_bit(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def _set_a_byte(random: Random, data: bytearray) -> None:
    if data:
        data[random.randrange(len(data))] = random.choice((0, 1, 127, 128, 254, 255))


def _cut_off(random: Random, data: bytearray) -> None:
    if data:
        del data[random.randrange(len(data)) :]


def _extend(random: Random, data: bytearray) -> None:
    data += random.randbytes(random.choice((1, 2, 8, 300)))


def _remove_some(random: Random, data: bytearray) -> None:
    start = random.randrange(len(data) + 1)
    del data[start : start + random.randrange(1, 9)]


def _insert_some(random: Random, data: bytearray) -> None:
    start = random.randrange(len(data) + 1)
    data[start:start] = random.randbytes(random.randrange(1, 9))


def _repeat_some(random: Random, data: bytearray) -> None:
    start = random.randrange(len(data) + 1)
    end = start + random.randrange(1, 40)
    data[end:end] = data[start:end] * random.choice((1, 2, 50))


def _swap_some(random: Random, data: bytearray) -> None:
    size = random.choice((1, 2, 4, 8))
    if len(data) >= 2 * size:
        one, other = sorted(random.randrange(len(data) - size + 1) for _ in range(2))
        if other - one >= size:
            data[one : one + size], data[other : other + size] = (
                data[other : other + size],
                data[one : one + size],
            )


def _set_a_number(random: Random, data: bytearray) -> None:
    """What may be a size or a count: another one, at an edge or one more or less."""
    size, code = random.choice(((1, ">B"), (2, ">H"), (4, ">I")))
    if len(data) < size:
        return
    start = random.randrange(len(data) - size + 1)
    number = int.from_bytes(data[start : start + size], "big")
    wanted = random.choice((*EDGES, number + 1, number - 1, number * 2))
    data[start : start + size] = pack(code, wanted % (1 << 8 * size))


def _insert_a_text(random: Random, data: bytearray) -> None:
    text = random.choice(TEXTS)
    start = random.randrange(len(data) + 1)
    data[start : start + len(text)] = text


_KINDS: tuple[Damage, ...] = (
    _flip_a_bit,
    _set_a_byte,
    _cut_off,
    _extend,
    _remove_some,
    _insert_some,
    _repeat_some,
    _swap_some,
    _set_a_number,
    _set_a_number,
    _insert_a_text,
)
