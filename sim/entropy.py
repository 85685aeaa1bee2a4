"""Chance out of the seed: as good as any to the code, and the same in every run."""

from random import Random


class SimEntropy:
    def __init__(self, random: Random) -> None:
        self._random = random

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def below(self, end: int) -> int:
        return self._random.randrange(end)
