"""What one connection says, in which pieces, and how much of it was looked at.

Whoever sends nonsense is cut off, and what comes after it is read by nobody: a session that is
damaged early, or often, tests little. So a session has echoes: frames that do nothing and are
answered. The answers to them say how far the broker came.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from random import Random
from typing import Self

# The first frame, and after its answer: the rest in one write; a write for each frame; in tiny
# pieces. Or all in one write, without waiting for any answer; or that, and gone without a word.
MANNERS = ("whole", "whole", "frames", "frames", "tiny", "blind", "gone")


class Damaged(bytes):
    """A frame that is not right."""


class Echo(bytes):
    """A frame that does nothing. Its answer says that the broker has looked at all before it.

    Echoes with one label are answered in their order.
    """

    label: bytes

    def __new__(cls, data: bytes, label: bytes = b"") -> Self:
        echo = super().__new__(cls, data)
        echo.label = label
        return echo


@dataclass(frozen=True)
class Session:
    number: int
    frames: tuple[bytes, ...]
    manner: str

    @cached_property
    def count(self) -> int:
        """Return how many frames are sent, without echoes."""
        return sum(not isinstance(frame, Echo) for frame in self.frames)

    @cached_property
    def echoes(self) -> Counter[bytes]:
        return Counter(frame.label for frame in self.frames if isinstance(frame, Echo))

    def writes(self) -> list[bytes]:
        first, *rest = self.frames
        match self.manner:
            case "frames":
                writes = [first, *rest]
            case "whole":
                writes = [first, b"".join(rest)]
            case "tiny":
                data = b"".join(rest)
                tail = data[-200:]
                pieces = [tail[place : place + 7] for place in range(0, len(tail), 7)]
                writes = [first, data[:-200], *pieces]
            case _:
                writes = [b"".join(self.frames)]
        return [data for data in writes if data]


Speak = Callable[[Random], list[bytes]]


@dataclass(frozen=True)
class Speaker:
    """A protocol: what clients say, and how the answer to an echo is recognised."""

    speak: Speak
    answer: re.Pattern[bytes]  # If it has a group, that is the label.
    # Each frame is answered, right or not, so that there need be no echoes.
    is_each_answered: bool = False
    # What a client has to say again later, and what is in its place in a session: as long.
    learns: Callable[[bytes], dict[bytes, bytes]] | None = None

    def answers(self, data: bytes, start: int) -> Iterator[bytes]:
        """Find the answers to echoes that end after `start`: their labels."""
        for found in self.answer.finditer(data):
            if found.end() > start:
                yield found[1] if found.re.groups else b""

    def looked_at(self, session: Session, answers: Counter[bytes]) -> tuple[int, int]:
        """Return how many frames the broker has looked at, judged by its answers.

        The second number is how many of them came after one that is not right.
        """
        left, looked, after, since, since_damage = +answers, 0, 0, 0, 0
        is_damaged = False
        for frame in session.frames:
            if not isinstance(frame, Echo):
                since += 1
                since_damage += is_damaged
                is_damaged = is_damaged or isinstance(frame, Damaged)
            label = frame.label if isinstance(frame, Echo) else b""
            if isinstance(frame, Echo) or self.is_each_answered:
                if left[label] > 0:
                    left[label] -= 1
                    looked, after = looked + since, after + since_damage
                since = since_damage = 0
        return looked, after

    def is_over(self, session: Session, answers: Counter[bytes]) -> bool:
        """Return whether the last answer has come."""
        if self.is_each_answered:
            return answers[b""] >= len(session.frames)
        for frame in reversed(session.frames):
            if isinstance(frame, Echo):
                return answers[frame.label] >= session.echoes[frame.label]
        return False


def place_near_end(random: Random, frames: Sequence[bytes]) -> int:
    """Return where to damage something: what comes after it is mostly not looked at."""
    if random.random() < 0.1:
        return random.randrange(len(frames))
    return len(frames) - 1 - random.randrange(1 + len(frames) // 5)


def with_echoes(random: Random, frames: Sequence[bytes], echo: bytes) -> list[bytes]:
    """Add echoes: after some frames, after each that is not right, and at the end."""
    found: list[bytes] = []
    for place, frame in enumerate(frames):
        found.append(frame)
        is_last = place == len(frames) - 1
        if is_last or isinstance(frame, Damaged) or (place and random.random() < 0.6):
            found.append(Echo(echo))
    return found


def make_session(protocol: str, speak: Speak, seed: int, number: int) -> Session:
    """The session of that number: always the same for one seed."""
    random = Random(f"{protocol} {seed} {number}")
    frames = list(speak(random))
    if random.random() < 0.05 and len(frames) > 1:
        frames.insert(place_near_end(random, frames), random.choice(frames))
    if random.random() < 0.05 and len(frames) > 1:
        one, other = place_near_end(random, frames), place_near_end(random, frames)
        frames[one], frames[other] = frames[other], frames[one]
    if random.random() < 0.05 and frames[-1]:
        frames[-1] = Damaged(frames[-1][: random.randrange(len(frames[-1]))])
    return Session(number, tuple(frames), random.choice(MANNERS))
