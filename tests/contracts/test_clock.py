import asyncio

from entrepot.core.ports import Clock


def test_monotonic_time_passes_with_waiting(on_clock) -> None:
    async def body(clock: Clock) -> None:
        before = clock.monotonic()
        await asyncio.sleep(0.02)
        assert 0.015 < clock.monotonic() - before < 5

    on_clock(body)


def test_wall_time_is_milliseconds_since_1970(on_clock) -> None:
    async def body(clock: Clock) -> None:
        before = clock.now_ms()
        assert isinstance(before, int)
        assert 1_700_000_000_000 < before < 10_000_000_000_000
        await asyncio.sleep(0.02)
        assert 15 <= clock.now_ms() - before < 5_000

    on_clock(body)
