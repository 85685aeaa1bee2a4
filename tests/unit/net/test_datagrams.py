"""Groups of IP multicast, on the loopback interface."""

import asyncio
import errno
import socket

import pytest

from entrepot.core.ports import Address
from entrepot.net.datagrams import SocketDatagramNet, open_group

HOST = "127.0.0.1"
GROUPS = ("239.255.77.1", "239.255.77.2")


def free_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def port() -> int:
    """A port, where the system lets groups be joined on loopback."""
    found = free_port()
    try:
        open_group(HOST, GROUPS[0], found, listens=True).close()
    except OSError as error:
        if error.errno in (errno.ENODEV, errno.EADDRNOTAVAIL, errno.ENOPROTOOPT):
            pytest.skip("no IP multicast here")
        raise
    return found


def test_join_any_number_of_groups_leave_at_any_time_send_without_joining(port: int) -> None:
    async def body() -> None:
        net = SocketDatagramNet(1_400)
        got: dict[str, list[bytes]] = {"both": [], "second": []}
        joined = [
            await net.join(HOST, group, port, lambda data, _, who=who: got[who].append(data))
            for who, group in (("both", GROUPS[0]), ("both", GROUPS[1]), ("second", GROUPS[1]))
        ]

        async def send(group: str, data: bytes) -> None:
            with open_group(HOST, group, port, listens=False) as source:
                source.sendto(data, (group, port))
            for _ in range(100):
                await asyncio.sleep(0.02)
                if data in got["both"]:
                    return

        await send(GROUPS[0], b"to the first")
        await send(GROUPS[1], b"to the second")
        assert got == {"both": [b"to the first", b"to the second"], "second": [b"to the second"]}
        joined[2].close()
        await send(GROUPS[1], b"after it left")
        assert got["both"][-1] == b"after it left"
        assert got["second"] == [b"to the second"]
        for each in joined:
            each.close()

    asyncio.run(body())


def test_a_member_may_send_too(port: int) -> None:
    async def body() -> None:
        heard = asyncio.Event()
        sources: list[Address] = []

        def received(data: bytes, source: Address) -> None:
            sources.append(source)
            heard.set()

        member = await SocketDatagramNet(1_400).join(HOST, GROUPS[0], port, received)
        member.send(b"x", (GROUPS[0], port))
        await asyncio.wait_for(heard.wait(), 20)
        member.close()

    asyncio.run(body())
