"""The golden frames of tests/vectors/stomp.txt."""

import ast
import json
import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from entrepot.wire.stomp.frames import Event, Frame, FrameReader, Sends

PATH = Path(__file__).parents[3] / "vectors" / "stomp.txt"
_TITLE = re.compile(r'([\w.-]+) (1\.[012]) "(.+)"')


class Vector(NamedTuple):
    name: str
    version: str
    data: bytes
    frames: list[Frame]
    mistake: str | None  # A part of the text; None when there is none.


def read() -> list[Vector]:
    text = PATH.read_text("utf-8")
    blocks = [block for block in text.split("\n\n") if not block.startswith("#")]
    return [_vector(block.strip("\n").split("\n")) for block in blocks]


def _vector(lines: list[str]) -> Vector:
    title, data, *expected = lines
    found = _TITLE.fullmatch(title)
    assert found, title
    frames, mistake = [], None
    for line in expected:
        if line.startswith("! "):
            mistake = line[2:]
        else:
            command, _, rest = line.partition(" ")
            headers, end = json.JSONDecoder().raw_decode(rest)
            frames.append(Frame(command, headers, json.loads(rest[end:]).encode()))
    return Vector(found[1], found[2], ast.literal_eval(f"b'{data}'"), frames, mistake)


def reader(version: str, body_bytes_max: int = 65_536) -> FrameReader:
    """One on which the version is agreed."""
    made = FrameReader(body_bytes_max=body_bytes_max)
    feed(made, [b"CONNECT\naccept-version:%s\n\n\0" % version.encode()])
    assert made.version == version
    return made


def feed(into: FrameReader, pieces: Iterable[bytes]) -> list[Event]:
    """Everything that comes out, runs of SEND taken apart."""
    events: list[Event] = []
    for piece in pieces:
        left = piece
        while left:
            view = into.writable()
            assert len(view) > 0
            size = min(len(view), len(left))
            view[:size] = left[:size]
            del view
            for event in into.received(size):
                events += event.frames if isinstance(event, Sends) else [event]
            left = left[size:]
    return events
