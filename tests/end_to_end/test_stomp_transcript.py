"""The terminal session of docs/protocols/stomp.md, typed into a socket."""

import re
import socket
from pathlib import Path

import pytest

from entrepot.testing import Broker, broker

PAGE = Path(__file__).parents[2] / "docs" / "protocols" / "stomp.md"
WAIT_S = 30
ANY = "…"  # Stands for what is different each time.


def session() -> list[tuple[bool, str]]:
    """Parts that are typed (True) and answers, in turn."""
    found = re.search(r"```stomp\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert found
    parts: list[tuple[bool, str]] = []
    for line in found[1].splitlines():
        is_typed = line.startswith(">")
        text = line.removeprefix(">").removeprefix(" ") if is_typed else line
        if parts and parts[-1][0] is is_typed:
            parts[-1] = (is_typed, f"{parts[-1][1]}\n{text}")
        else:
            parts.append((is_typed, text))
    return [(is_typed, text.replace("^@", "\0")) for is_typed, text in parts]


@pytest.mark.parametrize("end_of_line", ["\n", "\r\n"], ids=["nc", "telnet"])
def test_the_session_of_the_documentation(end_of_line: str) -> None:
    """Proves U-01, the half of it that needs no library."""
    with broker() as server, terminal(server) as connection:
        known = ""  # What stood for the session's id.
        for is_typed, text in session():
            if is_typed:
                typed = text.replace(ANY, known) + "\n"
                connection.sendall(typed.replace("\n", end_of_line).encode())
                continue
            frames = [frame.lstrip("\n") for frame in text.split("\0")[:-1]]
            heard = [answer(connection) for _ in frames]
            for expected, got in zip(sorted(frames), sorted(heard), strict=True):
                pattern = re.escape(expected).replace(ANY, "([^\n]+?)")
                match = re.fullmatch(pattern, got)
                assert match, f"expected {expected!r}, got {got!r}"
                if "-1-1" in expected:
                    known = match[1]
        assert connection.recv(1) == b""  # After an ERROR it is closed.


def terminal(server: Broker) -> socket.socket:
    return socket.create_connection(server.stomp_address, WAIT_S)


def answer(connection: socket.socket) -> str:
    data = b""
    while not data.endswith(b"\0"):
        more = connection.recv(1)
        assert more, f"closed after {data!r}"
        data += more
    return data.removesuffix(b"\0").decode()


def test_the_session_says_something() -> None:
    parts = session()
    assert len(parts) > 8
    assert parts[0] == (True, "CONNECT\n\n\0")
