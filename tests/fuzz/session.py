"""What one connection says, and in which pieces."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

# In one write; a write for each frame; in tiny pieces; in one write, and gone without a word.
MANNERS = ("whole", "whole", "whole", "frames", "frames", "tiny", "gone")


@dataclass(frozen=True, slots=True)
class Session:
    number: int
    frames: tuple[bytes, ...]
    manner: str

    def writes(self) -> list[bytes]:
        if self.manner == "frames":
            return [frame for frame in self.frames if frame]
        data = b"".join(self.frames)
        if self.manner != "tiny":
            return [data] if data else []
        tail = data[-200:]
        return [data[:-200], *(tail[place : place + 7] for place in range(0, len(tail), 7))]


Speak = Callable[[Random], list[bytes]]


def make_session(protocol: str, speak: Speak, seed: int, number: int) -> Session:
    """The session of that number: always the same for one seed."""
    random = Random(f"{protocol} {seed} {number}")
    frames = list(speak(random))
    if random.random() < 0.05 and len(frames) > 1:
        place = random.randrange(len(frames))
        frames.insert(random.randrange(len(frames)), frames[place])
    if random.random() < 0.05 and len(frames) > 1:
        one, other = random.randrange(len(frames)), random.randrange(len(frames))
        frames[one], frames[other] = frames[other], frames[one]
    if random.random() < 0.05 and frames[-1]:
        frames[-1] = frames[-1][: random.randrange(len(frames[-1]))]
    return Session(number, tuple(frames), random.choice(MANNERS))
