"""`entrepot pub`, `sub`, `sessions` and `retained`, as people call them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from entrepot.cli import main
from entrepot.testing import Broker, broker
from tests.end_to_end.mqtt_peers import Client, eventually

WAIT_S = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.http": 0}) as started:
        yield started


def environment(server: Broker) -> dict[str, str]:
    host, port = server.mqtt_address
    return {"ENTREPOT_MQTT": f"{host}:{port}", "ENTREPOT_HTTP": server.http_address}


def invoke(server: Broker, *arguments: str, said: str | None = None) -> Result:
    return CliRunner(env=environment(server)).invoke(main, arguments, input=said)


def output(server: Broker, *arguments: str) -> str:
    result = invoke(server, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def start(server: Broker, *arguments: str) -> "subprocess.Popen[bytes]":
    """Start a command in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "entrepot.cli", *arguments],
        env={**os.environ, **environment(server)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def subscribed(server: Broker, client_id: str) -> None:
    """Wait until a client has subscribed."""

    def is_so() -> bool:
        result = invoke(server, "sessions", "show", client_id, "--json")
        return result.exit_code == 0 and json.loads(result.stdout)["subscriptions"] > 0

    eventually(is_so)


@pytest.mark.slow
@pytest.mark.parametrize(("version", "qos"), [("3.1.1", 0), ("5", 1), ("5", 2)])
def test_what_is_published_is_printed(server: Broker, version: str, qos: int) -> None:
    name = f"both-{version}-{qos}"
    options = ["-V", version, "-q", str(qos)]
    with start(server, "sub", f"{name}/#", "-n", "3", "-v", "-i", name, *options) as reader:
        subscribed(server, name)
        output(server, "pub", f"{name}/a", "one", *options)
        with start(server, "pub", f"{name}/b", "--lines", *options) as writer:
            _, said = writer.communicate(b"two\ndrei \xc3\xbc\n", WAIT_S)
            assert said.decode() == f"published 2 messages on {name}/b\n"
        printed, said = reader.communicate(timeout=WAIT_S)
    assert printed.decode() == f"{name}/a one\n{name}/b two\n{name}/b drei ü\n"
    assert said == b""


def test_formats(server: Broker) -> None:
    output(server, "pub", "formats/a", "hi", "-r", "-q", "1")
    one = ("sub", "formats/a", "-n", "1")
    assert output(server, *one) == "hi\n"
    assert output(server, *one, "--format", r"%t\t%q%r %l %x %%") == "formats/a\t01 2 6869 %\n"
    assert json.loads(output(server, *one, "-q", "1", "--json")) == {
        "topic": "formats/a",
        "payload": "hi",
        "qos": 1,
        "retained": True,
        "repeated": False,
    }


def test_properties_in_json(server: Broker) -> None:
    options = ["--expiry", "60", "--content-type", "text/plain", "--response-topic", "answers"]
    options += ["--correlation", "7", "-P", "a=1", "-P", "b=2", "-r"]
    output(server, "pub", "properties", "x", *options)
    found = json.loads(output(server, "sub", "properties", "-n", "1", "--json"))
    assert 0 < found.pop("expiry") <= 60
    assert found == {
        "topic": "properties",
        "payload": "x",
        "qos": 0,
        "retained": True,
        "repeated": False,
        "content_type": "text/plain",
        "response_topic": "answers",
        "correlation": "7",
        "properties": [["a", "1"], ["b", "2"]],
    }


def test_bytes_that_are_no_text(server: Broker, tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\x00\n")
    output(server, "pub", "bytes", "-f", str(tmp_path / "bytes"), "-r")
    found = json.loads(output(server, "sub", "bytes", "-n", "1", "--json"))
    assert found["payload"] == {"base64": "/wAK"}


def test_a_large_message_is_sent_before_the_command_ends(server: Broker, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(8 << 20))
    with Client(server.mqtt_address, "large") as client:
        client.subscribe("large")
        output(server, "pub", "large", "-f", str(tmp_path / "large"))
        assert len(client.wait_for(1)[0]) == 8 << 20


def test_retained_messages(server: Broker) -> None:
    for name in ("a", "b/c", "b/d"):
        output(server, "pub", f"kept/{name}", "x" * 10, "-r", "-q", "1")
    rows = [line.split() for line in output(server, "retained", "list", "kept/#").splitlines()]
    assert [row[:2] for row in rows[1:]] == [
        ["kept/a", "10"],
        ["kept/b/c", "10"],
        ["kept/b/d", "10"],
    ]
    assert output(server, "sub", "kept/#", "--retained", "only", "-n", "3").count("\n") == 3
    assert output(server, "sub", "kept/#", "--retained", "no", "-W", "0.3") == ""
    assert output(server, "retained", "clear", "kept/b/+") == "deleted 2 messages\n"
    listed = output(server, "retained", "list", "kept/#", "--json").splitlines()
    assert [json.loads(line)["topic"] for line in listed] == ["kept/a"]
    output(server, "pub", "kept/a", "--empty", "-r", "-q", "1")
    assert output(server, "retained", "list", "kept/#") == ""
    assert output(server, "retained", "clear", "kept/#") == "deleted 0 messages\n"


def test_sessions(server: Broker) -> None:
    assert (
        output(server, "sub", "later", "-q", "1", "-i", "away/1", "--keep", "60", "-W", "0.3") == ""
    )
    output(server, "pub", "later", "one", "-q", "1")
    rows = [line.split() for line in output(server, "sessions", "list").splitlines()]
    assert ["away/1", "ANONYMOUS", "no", "1", "1", "0"] in [row[:6] for row in rows]
    shown = output(server, "sessions", "show", "away/1")
    assert "session away/1 of ANONYMOUS\n  away since " in shown
    assert "  1 ready, 0 unacked\n  subscribed to later with QoS 1\n" in shown
    again = ("sub", "later", "-q", "1", "-i", "away/1", "--keep", "60", "-n", "1")
    assert output(server, *again) == "one\n"
    assert output(server, "sessions", "delete", "away/1") == "deleted away/1\n"
    gone = invoke(server, "sessions", "delete", "away/1")
    assert (gone.exit_code, gone.stderr) == (1, "there is no session away/1\n")
    assert invoke(server, "sessions", "show", "away/1").exit_code == 1


def test_a_connected_client_is_disconnected_with_its_session(server: Broker) -> None:
    with Client(server.mqtt_address, "there") as client:
        assert '"connected": true' in output(server, "sessions", "show", "there", "--json")
        output(server, "sessions", "delete", "there")
        client.until(lambda: client.disconnected is not None)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("pub", "a"), 2, "one of MESSAGE, --lines, --file and --empty"),
        (("pub", "a", "x", "--empty"), 2, "one of MESSAGE"),
        (("pub", "a/#", "x"), 2, "has no + and #"),
        (("pub", "a", "x", "-V", "3.1.1", "--expiry", "5"), 2, "need version 5"),
        (("pub", "$SYS/x", "x", "-q", "1"), 1, "$SYS/x: no permission (0x87)"),
        (("sub", "a/#/b"), 2, "+ is a whole level, # the last one"),
        (("sub", "a", "--format", "%z"), 2, "%z is not one of"),
        (("sub", "a", "--json", "-v"), 2, "one of --verbose, --format and --json"),
        (("sub", "a", "--keep", "5"), 2, "--keep needs --id"),
        (("sub", "a", "-b", "127.0.0.1:1"), 1, "no broker answers at 127.0.0.1:1"),
        (("retained", "clear", "a/#/b"), 1, ""),
    ],
)
def test_mistakes_are_one_line(
    server: Broker, arguments: tuple[str, ...], code: int, words: str
) -> None:
    result = invoke(server, *arguments)
    assert result.exit_code == code, result.output
    assert words in result.stderr
    assert "Traceback" not in result.output


def test_another_protocol_at_the_port(server: Broker) -> None:
    host, port = server.endpoints["amqp"]
    result = invoke(server, "pub", "a", "x", "-b", f"{host}:{port}")
    assert result.exit_code == 1
    assert len(result.stderr.splitlines()) == 1
