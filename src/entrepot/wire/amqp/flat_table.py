"""Tables without tables or arrays inside, as most messages have for headers: quickly read.

These functions look at every durable message, or every message; `table` does everything else. They
are in a module of their own because it can be compiled.
"""

from collections.abc import Callable

# Sizes of values, by the letter of their type; those of the other types are before the value.
SIZES: dict[int, int] = {
    **dict.fromkeys(b"bBt", 1),
    **dict.fromkeys(b"su", 2),
    **dict.fromkeys(b"Iif", 4),
    **dict.fromkeys(b"lLTd", 8),
    ord("D"): 5,
    ord("V"): 0,
}
LONG_STRINGS = b"Sx"
_SIGNED = b"bsIlL"
_UNSIGNED = b"BuiT"
_BOOLEAN = ord("t")
_VOID = ord("V")


def is_flat(data: bytes, start: int, end: int) -> bool:
    """Return whether the table there is well formed and has no tables or arrays inside.

    This is quick, and true for most. For others call `table.fields`, which raises if malformed.
    """
    sizes, position = SIZES, start
    try:
        while position < end:
            position += 1 + data[position]
            letter = data[position]
            size = sizes.get(letter)
            if size is None:
                if letter not in LONG_STRINGS:
                    return False
                size = 4 + int.from_bytes(data[position + 1 : position + 5], "big")
            position += 1 + size
    except IndexError:
        return False
    return position == end <= len(data)


def texts(data: bytes, text_of: Callable[[bytes], bytes]) -> dict[bytes, bytes | None]:
    """Return the fields of a well-formed table as texts, by name, without decoding its strings.

    `text_of` returns the text of an encoded value that is not a string, a whole number, a boolean
    or nothing.
    """
    found: dict[bytes, bytes | None] = {}
    position, end = 0, len(data)
    while position < end:
        start = position + 1
        position = start + data[position]
        name = data[start:position]
        letter = data[position]
        start = position + 1
        text: bytes | None
        if letter in LONG_STRINGS:
            start += 4
            position = start + int.from_bytes(data[start - 4 : start], "big")
            text = data[start:position]
        elif letter in _SIGNED or letter in _UNSIGNED:
            position = start + SIZES[letter]
            number = int.from_bytes(data[start:position], "big", signed=letter in _SIGNED)
            text = b"%d" % number
        elif letter == _BOOLEAN:
            position = start + 1
            text = b"true" if data[start] else b"false"
        elif letter == _VOID:
            position, text = start, None
        else:
            size = SIZES.get(letter)
            if size is None:
                size = 4 + int.from_bytes(data[start : start + 4], "big")
            position = start + size
            text = text_of(data[start - 1 : position])
        found.setdefault(name, text)
    return found
