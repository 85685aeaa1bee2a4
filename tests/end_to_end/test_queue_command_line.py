"""`entrepot queues`, `exchanges`, `bind`, and RabbitMQ's commands, as people call them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from entrepot.cli import main
from entrepot.cli.management import Api
from entrepot.testing import Broker, broker
from tests.end_to_end.secured import command

WAIT_S = 30
BIN = Path(__file__).parents[2] / "bin"


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.http": 0}) as started:
        yield started


def invoke(server: Broker, *arguments: str) -> Result:
    return CliRunner(env={"ENTREPOT_HTTP": server.http_address}).invoke(main, arguments)


def output(server: Broker, *arguments: str) -> str:
    result = invoke(server, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(server: Broker, *arguments: str) -> list[list[str]]:
    """The cells of a table without its heading."""
    return [line.split() for line in output(server, *arguments).splitlines()[1:]]


def publish(server: Broker, queue: str, *bodies: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
    channel = connection.channel()
    channel.confirm_delivery()
    for body in bodies:
        channel.basic_publish("", queue, body.encode(), pika.BasicProperties(delivery_mode=2))
    connection.close()


def test_queues(server: Broker) -> None:
    said = output(server, "queues", "declare", "one", "two", "--set", "x-max-length=5")
    assert said == "declared one\ndeclared two\n"
    publish(server, "one", "a", "b", "c")
    assert ["/", "one", "classic", "3", "0", "0", "0"] in rows(server, "queues", "list")
    shown = output(server, "queues", "show", "one")
    assert "x-max-length = 5" in shown
    assert "3 ready, 0 unacked" in shown
    described = json.loads(output(server, "queues", "show", "one", "--json"))
    assert (described["messages"], described["arguments"]) == (3, {"x-max-length": 5})
    assert output(server, "queues", "peek", "one", "-n", "2") == "a\nb\n"
    assert json.loads(output(server, "queues", "peek", "one", "-n", "1", "--json"))["offset"] == 0
    moved = output(server, "queues", "move", "one", "two", "-n", "2")
    assert moved == "moved 2 from one to two\n"
    assert output(server, "queues", "peek", "two") == "a\nb\n"
    assert output(server, "queues", "rewind", "one", "--to", "1") == "rewound one: 2 ready\n"
    assert output(server, "queues", "rewind", "one", "--to", "earliest") == "rewound one: 3 ready\n"
    again = output(server, "queues", "rewind", "one", "--to", "2999-01-01")
    assert again == "rewound one: 3 ready\n", "nothing is lost by it"
    assert output(server, "queues", "purge", "two") == "purged two\n"
    assert output(server, "queues", "delete", "one", "two") == "deleted one\ndeleted two\n"
    assert output(server, "queues", "delete", "one", "--if-exists") == ""
    gone = invoke(server, "queues", "delete", "one")
    assert (gone.exit_code, gone.stderr) == (1, "Error: no queue 'one' in vhost '/'\n")


def test_check(server: Broker) -> None:
    output(server, "queues", "declare", "checked", "--set", "x-max-length=2")
    publish(server, "checked", "a", "b", "c")
    checked = ["/", "checked", "2", "0", "0", "0", "0", "1", "ok", "1", "maxlen"]
    assert checked in rows(server, "queues", "check")
    assert rows(server, "queues", "check", "checked") == [checked]
    assert "dropped: 1 maxlen" in output(server, "queues", "show", "checked")
    found = json.loads(output(server, "queues", "check", "checked", "--json"))
    assert (found["accepted"], found["dropped"], found["ok"]) == (3, {"maxlen": 1}, True)
    missing = invoke(server, "queues", "check", "none")
    assert (missing.exit_code, missing.stderr) == (1, "Error: no queue 'none' in vhost '/'\n")
    output(server, "queues", "delete", "checked")


def test_check_finds_what_is_missing(server: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    row = {"name": "q", "vhost": "/", "ready": 1, "unacked": 0, "deferred": 0, "dying": 0}
    row |= {"consumed": 2, "dead_lettered": 1, "dropped": {}, "wrong": ["missing: 2 messages"]}
    monkeypatch.setattr(Api, "get", lambda self, *path, **query: [row | {"ok": False}])
    result = invoke(server, "queues", "check")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1].split() == ["/", *"q1000", "3", "0", "WRONG"]
    assert result.stderr == "queue q in /: missing: 2 messages\n"


def test_exchanges_and_bindings(server: Broker) -> None:
    output(server, "queues", "declare", "bound")
    output(server, "exchanges", "declare", "ex", "--type", "topic")
    output(server, "exchanges", "declare", "ex2", "--type", "headers", "--auto-delete")
    assert ["/", "ex", "topic", "durable"] in rows(server, "exchanges", "list")
    output(server, "bind", "ex", "bound", "-k", "a.#")
    output(server, "bind", "ex2", "exchange:ex", "--set", "x-match=any", "--set", "n=1")
    assert rows(server, "bindings") == [
        ["/", "ex", "queue:bound", "a.#"],
        ["/", "ex2", "exchange:ex", "n=1", 'x-match="any"'],
    ]
    assert ["/", "(default)", "queue:bound", "bound"] in rows(server, "bindings", "--all")
    wrong = invoke(server, "unbind", "ex", "bound", "-k", "b")
    assert (wrong.exit_code, "is not bound" in wrong.stderr) == (1, True)
    output(server, "unbind", "ex2", "exchange:ex", "--set", "x-match=any", "--set", "n=1")
    output(server, "unbind", "ex", "queue:bound", "-k", "a.#")
    output(server, "bind", "sensors/+/#", "queue:bound")
    assert rows(server, "bindings") == [["/", "amq.topic", "queue:bound", "sensors.*.#"]]
    assert "has no key" in invoke(server, "bind", "a/#", "bound", "-k", "k").output
    assert "stands alone" in invoke(server, "bind", "a#", "bound").output
    output(server, "unbind", "sensors/+/#", "queue:bound")
    assert rows(server, "bindings") == []
    output(server, "exchanges", "delete", "ex")
    assert output(server, "exchanges", "delete", "ex", "ex2", "--if-exists") == ""
    output(server, "queues", "delete", "bound")


def ctl(server: Broker, *arguments: str) -> str:
    return output(server, "rabbitmqctl", *arguments)


def test_rabbitmqctl_lists_s11(server: Broker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
    channel = connection.channel()
    channel.queue_declare("work", durable=True, arguments={"x-max-priority": 3})
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("work", lambda *_: None, consumer_tag="worker")
    publish(server, "work", "a", "b")
    deadline = time.monotonic() + WAIT_S
    columns = ("name", "messages_ready", "messages_unacknowledged")
    while "work\t1\t1\n" not in (listed := ctl(server, "list_queues", *columns)):
        assert time.monotonic() < deadline, listed
        connection.process_data_events(0.05)
    assert listed.startswith(
        "Timeout: 60.0 seconds ...\nListing queues for vhost / ...\n" + "\t".join(columns) + "\n"
    )
    assert ctl(server, "list_queues", "-q", "name", "arguments") == (
        'name\targuments\nwork\t[{"x-max-priority",3}]\n'
    )
    (channel_line,) = ctl(server, "list_channels").splitlines()[2:]
    assert channel_line.split("\t")[1:] == ["guest", "1", "1"]
    (consumer,) = ctl(server, "list_consumers", "-q").splitlines()[1:]
    assert consumer.split("\t")[0::2] == ["work", "worker", "1", "[]"]
    (connected,) = ctl(server, "list_connections", "user", "state").splitlines()[2:]
    assert connected == "guest\trunning"
    assert "amq.topic\ttopic\n" in ctl(server, "list_exchanges")
    assert "\texchange\twork\tqueue\twork\t[]\n" in ctl(server, "list_bindings")
    as_json = json.loads(ctl(server, "list_queues", "--formatter", "json"))
    assert as_json == [{"name": "work", "messages": 2}]
    status = ctl(server, "status")
    assert "Connection count: 1" in status
    assert f"port: {server.endpoints['amqp'][1]}, protocol: amqp" in status
    connection.close()
    output(server, "queues", "delete", "work")


def test_rabbitmqctl_virtual_hosts_and_users(server: Broker) -> None:
    assert ctl(server, "add_vhost", "v1") == 'Adding vhost "v1" ...\n'
    assert ctl(server, "list_vhosts") == "Listing vhosts ...\nname\n/\nv1\n"
    ctl(server, "add_user", "ana", "secret")
    assert "ana\t[administrator]\n" in ctl(server, "list_users")  # Nothing is asked here.
    ctl(server, "change_password", "ana", "other")
    ctl(server, "set_permissions", "-p", "v1", "ana", "^a", ".*", "")
    assert "ana\t^a\t.*\t\n" in ctl(server, "list_permissions", "-p", "v1")
    ctl(server, "delete_user", "ana")
    ctl(server, "delete_vhost", "v1")
    for arguments, code, said in (
        (["delete_user", "ana"], 67, 'User "ana" does not exist'),
        (["change_password", "ana", "x"], 67, 'User "ana" does not exist'),
        (["delete_vhost", "v1"], 65, "vhost 'v1' not found"),
        (["list_permissions", "-p", "v1"], 65, "vhost 'v1' not found"),
        (["list_queues", "nosuch"], 64, "Info key(s) nosuch are not supported"),
        (["reset"], 64, "requires the 'rabbit' app to be stopped"),
        (["list_queues", "--http", "127.0.0.1:1"], 69, "no broker answers at 127.0.0.1:1"),
    ):
        result = invoke(server, "rabbitmqctl", *arguments)
        assert (result.exit_code, said in result.stderr) == (code, True), result.output


def test_stop_app_reset_start_app_s11(server: Broker) -> None:
    output(server, "queues", "declare", "gone")
    ctl(server, "stop_app")
    with pytest.raises(pika.exceptions.AMQPError):
        publish(server, "gone", "a")
    ctl(server, "reset")
    ctl(server, "start_app")
    assert output(server, "queues", "list") == ""


def test_a_server_in_the_background_from_bin_s10(tmp_path: Path) -> None:
    """`rabbitmq-server -detached` and `rabbitmqctl stop`, as RabbitMQ's."""
    scripts = tmp_path / "bin"
    scripts.mkdir()
    for name in ("rabbitmq-server", "rabbitmqctl"):
        (scripts / name).write_bytes((BIN / name).read_bytes())
        (scripts / name).chmod(0o755)
    runner = scripts / "entrepot"
    runner.write_text('#!/bin/sh\nexec "$PYTHON" -m entrepot.cli "$@"\n')
    runner.chmod(0o755)
    data = tmp_path / "data"
    env = {**os.environ, "PYTHON": sys.executable, "ENTREPOT_DATA_DIR": str(data)}
    ports = ["--kafka-port", "off", "--amqp-port", "0", "--mqtt-port", "off", "--http-port", "0"]
    ports += ["--stomp-port", "off", "--sqs-port", "off"]

    def run(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        line = [str(scripts / name), *arguments]
        return subprocess.run(
            line, env=env, capture_output=True, text=True, timeout=WAIT_S, check=False
        )

    started = run("rabbitmq-server", "-detached", *ports)
    assert started.stdout.startswith("ready, process "), started.stderr
    endpoints = json.loads((data / "endpoints.json").read_text())
    address = f"{endpoints['http']['host']}:{endpoints['http']['port']}"
    listed = run("rabbitmqctl", "list_vhosts", "-q", "--http", address)
    assert listed.stdout == "name\n/\n", listed.stderr
    stopped = run("rabbitmqctl", "shutdown", str(data / "server.pid"))
    assert "stopped process " in stopped.stdout, stopped.stderr
    assert not (data / "server.pid").exists()
    assert run("rabbitmqctl", "stop").returncode == 1
    assert run("rabbitmq-server", "-detached", *ports).stdout.startswith("ready, process ")
    assert run("rabbitmqctl", "stop").returncode == 0
    assert not (data / "server.pid").exists()


@pytest.mark.slow
def test_where_users_are_asked_for(tmp_path: Path) -> None:
    data = tmp_path / "data"
    users = ("users", "add", "root", "--data-dir", str(data), "--password-stdin")
    command(*users, stdin="r00t\n")
    settings = {
        "ports.http": 0,
        "security.authentication": "sasl",
        "security.authorization": True,
        "security.super_users": ["User:root"],
    }
    with broker(data, settings=settings) as server:
        denied = invoke(server, "queues", "list")
        assert denied.exit_code == 1
        assert "Login failed: guest is not let in here; --user NAME" in denied.stderr
        assert "it may want a login" in command("topics", "list", "-b", server.bootstrap, code=1)
        wrong = invoke(server, "queues", "list", "--http", server.bootstrap)
        assert "does not speak HTTP; the management port is 15672" in wrong.stderr
        runner = CliRunner(env={"ENTREPOT_HTTP": server.http_address})
        as_root = ["--user", "root", "--password-stdin"]
        result = runner.invoke(main, ["queues", "declare", "q", *as_root], input="r00t\n")
        assert (result.exit_code, result.stdout) == (0, "declared q\n"), result.output
        added = ["rabbitmqctl", "add_user", "ana", *as_root]
        result = runner.invoke(main, added, input="r00t\nsecret\n")
        assert result.exit_code == 0, result.output
        as_ana = ["--user", "ana", "--password-stdin"]
        result = runner.invoke(main, ["queues", "declare", "p", *as_ana], input="secret\n")
        assert "access to vhost '/' refused for user 'ana'" in result.stderr


def test_ends_of_transactions_are_no_messages() -> None:
    with broker(settings={"ports.http": 0}) as server:
        producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": "t"})
        producer.init_transactions()
        for _ in range(3):
            producer.begin_transaction()
            producer.produce("paid", "10 EUR")
            producer.commit_transaction()
        listed = [["/", "paid", "stream", "3", "0", "0", "0"]]
        assert rows(server, "queues", "list") == listed
        declared = pika.BlockingConnection(pika.URLParameters(server.amqp_url)).channel()
        assert declared.queue_declare("paid", passive=True).method.message_count == 3
        server.restart()
        assert rows(server, "queues", "list") == listed
        server.kill()
        server.start()
        assert rows(server, "queues", "list") == listed
        client = AdminClient({"bootstrap.servers": server.bootstrap})
        (deleted,) = client.delete_records([TopicPartition("paid", 0, 3)]).values()
        deleted.result(WAIT_S)
        assert rows(server, "queues", "list") == [["/", "paid", "stream", "1", "0", "0", "0"]]


def test_a_move_in_parts_keeps_the_order(server: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entrepot.cli.queues.MOVED_AT_ONCE", 2)
    output(server, "queues", "declare", "source", "target")
    publish(server, "source", *"abcde")
    for wanted in ("moved 5 from source to target\n", "moved 0 from source to target\n"):
        assert output(server, "queues", "move", "source", "target") == wanted
    assert output(server, "queues", "peek", "target") == "a\nb\nc\nd\ne\n"
    result = invoke(server, "queues", "move", "source", "source")
    assert (result.exit_code, "to itself" in result.output) == (1, True)


def test_a_name_with_brackets_is_shown_as_it_is(server: Broker) -> None:
    output(server, "queues", "declare", "[/red]x[bold]")
    assert "[/red]x[bold]" in [row[1] for row in rows(server, "queues", "list")]
