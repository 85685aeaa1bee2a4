"""`--json` means one thing everywhere: one JSON object per line."""

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, Producer

from entrepot.cli import COMMANDS, main
from entrepot.testing import Broker, broker
from tests.end_to_end.mqtt_peers import Client

# What each command is given. DATA stands for the directory of a broker that is stopped.
ARGUMENTS = {
    "bindings": [],
    "connect list": [],
    "cluster nodes": [],
    "cluster status": [],
    "consume": ["t"],
    "exchanges list": [],
    "doctor": ["--data-dir", "DATA"],
    "gossip lab": ["complete", "--nodes", "100", "--runs", "1"],
    "groups describe": ["g"],
    "groups list": [],
    "groups reset-offsets": ["g", "--to", "earliest"],
    "link list": [],
    "links": [],
    "log dump": ["DATA"],
    "log verify": ["DATA"],
    "multicast lab": ["chord", "--nodes", "16", "--runs", "1"],
    "pipeline list": ["examples/pipelines/sensors.py"],
    "prove": ["--semantics", "at-most-once", "--protocol", "mqtt"],
    "queues check": [],
    "queues deferred": ["amq.delayed"],
    "queues list": [],
    "queues peek": ["q"],
    "queues show": ["q"],
    "retained list": [],
    "routes": [],
    "routing lab": ["systems", "--nodes", "16", "--runs", "1"],
    "routing live": ["flooding", "--nodes", "4", "--events", "4"],
    "sessions list": [],
    "sessions show": ["s"],
    "spaces lab": ["summary"],
    "status": ["--data-dir", "DATA"],
    "sub": ["kept", "--count", "1"],
    "top": [],
    "topics describe": ["t"],
    "topics list": [],
    "transactions describe": ["x"],
    "transactions list": ["--all"],
    "transform list": [],
    "users add-key": ["ana", "--data-dir", "DATA"],
    "users list": ["--data-dir", "DATA"],
    "users list-keys": ["ana", "--data-dir", "DATA"],
}
# They go on until somebody ends them; test_gossip.py reads what they say.
ENDLESS = ("cluster watch", "gossip node", "multicast listen", "routing node")


def with_json() -> Iterator[str]:
    """Yield every command that has the option and ends, by all of its names."""
    context = click.Context(main)
    for name in COMMANDS:
        command = main.get_command(context, name)
        assert command is not None
        parts = command.commands if isinstance(command, click.Group) else {"": command}
        for part, each in parts.items():
            full = f"{name} {part}".strip()
            if full not in ENDLESS and any("--json" in option.opts for option in each.params):
                yield full


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    """A broker with one of everything."""
    link = {"to": "there", "address": "localhost:1"}
    settings = {"ports.http": 0, "manager.name": "here", "link": [link]}
    with broker(settings=settings) as started:
        at = {"bootstrap.servers": started.bootstrap}
        producer = Producer({**at, "transactional.id": "x"})
        producer.init_transactions()
        producer.begin_transaction()
        producer.produce("t", "one")
        producer.commit_transaction()
        consumer = Consumer({**at, "group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        assert consumer.poll(20) is not None
        consumer.close()
        with Client(started.mqtt_address, "s", expiry_s=600) as client:
            client.subscribe("kept", qos=1)
            client.publish("kept", b"x", 1, retain=True)
        yield started


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that has a user and a topic, and is stopped."""
    directory = tmp_path_factory.mktemp("stopped") / "data"
    add = ["users", "add", "ana", "--data-dir", str(directory), "--password-stdin"]
    assert CliRunner().invoke(main, add, input="secret\n").exit_code == 0
    add_key = ["users", "add-key", "ana", "--data-dir", str(directory)]
    assert CliRunner().invoke(main, add_key).exit_code == 0
    return directory


def test_every_command_is_tried() -> None:
    assert sorted(with_json()) == sorted(ARGUMENTS)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_json_is_one_object_per_line(name: str, server: Broker, stopped: Path) -> None:
    env = {"ENTREPOT_BOOTSTRAP": server.bootstrap, "ENTREPOT_HTTP": server.http_address}
    env["ENTREPOT_AMQP"] = "{}:{}".format(*server.endpoints["amqp"])
    env["ENTREPOT_MQTT"] = "{}:{}".format(*server.mqtt_address)
    runner = CliRunner(env=env)
    declare = ["exchanges", "declare", "later", "--type", "x-delayed-message"]
    runner.invoke(main, [*declare, "--set", "x-delayed-type=direct"])
    runner.invoke(main, ["queues", "declare", "q"])
    runner.invoke(main, ["bind", "later", "q", "-k", "q"])
    runner.invoke(main, ["transform", "add-format", "plain", "json"])
    post_messages(server)
    given = [word.replace("DATA", str(stopped)) for word in ARGUMENTS[name]]
    result = runner.invoke(main, [*name.split(), *given, "--json"])
    # No broker runs there; and on some machine something is bad, as a port that is taken.
    may_be = {"status": (1,), "doctor": (0, 1)}.get(name, (0,))
    assert result.exit_code in may_be, result.output
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    assert lines
    assert all(isinstance(line, dict) for line in lines), lines


def post_messages(server: Broker) -> None:
    """Publish one message to a queue, and one that waits for its time."""
    import pika

    connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "q", b"now", pika.BasicProperties(delivery_mode=2))
    later = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 600_000})
    channel.basic_publish("later", "q", b"later", later)
    connection.close()
