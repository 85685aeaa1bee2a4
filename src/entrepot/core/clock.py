"""The system's clock and random numbers. No other module asks the system for either."""

import secrets
import time


class SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()


class SystemEntropy:
    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def below(self, end: int) -> int:
        return secrets.randbelow(end)
