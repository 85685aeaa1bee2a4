"""Consumer groups from the command line: the console consumer as a member, and the tools.

The members are processes, started by the scripts in bin/ as a reader of the lectures
starts them; another is of a foreign library.
"""

import contextlib
import json
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from entrepot.cli import main
from entrepot.testing import Broker, broker
from tests.end_to_end.consumers import CLASSIC, SETTINGS, WAIT_S, members, produce, wait_until
from tests.end_to_end.test_lecture_transcript import ROOT, Terminal

COLUMNS = "GROUP TOPIC PARTITION CURRENT-OFFSET LOG-END-OFFSET LAG CONSUMER-ID HOST CLIENT-ID"
QUICK = ("heartbeat.interval.ms=300", "auto.commit.interval.ms=200")


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings=SETTINGS) as started:
        yield started


@pytest.fixture
def topic(server: Broker, request: pytest.FixtureRequest) -> str:
    """A topic of three partitions, named after the test."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    output(server, "topics", "create", name, "-p", "3")
    return name


def invoke(server: Broker, *arguments: str) -> Result:
    return CliRunner().invoke(main, [*arguments], env={"ENTREPOT_BOOTSTRAP": server.bootstrap})


def output(server: Broker, *arguments: str) -> str:
    """What a command that succeeds prints."""
    result = invoke(server, *arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


class ConsoleConsumer:
    """bin/kafka-console-consumer --group …, and what it prints."""

    def __init__(self, terminal: Terminal, topic: str, group: str, *settings: str) -> None:
        self.seen: list[tuple[int, str]] = []  # Partition and value.
        self._process = terminal.open(
            "kafka-console-consumer",
            *("--bootstrap-server", terminal.bootstrap, "--topic", topic, "--group", group),
            *("--from-beginning", "--property", "print.partition=true"),
            *(word for each in (*QUICK, *settings) for word in ("--consumer-property", each)),
        )
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            partition, _, value = line.rstrip("\n").partition("\t")
            self.seen.append((int(partition.removeprefix("Partition:")), value))

    def partitions(self) -> set[int]:
        return {partition for partition, _ in self.seen}

    def end(self, number: signal.Signals) -> int:
        """Its exit code."""
        self._process.send_signal(number)
        code = self._process.wait(WAIT_S)
        self._reading.join(WAIT_S)
        return code

    def close(self) -> None:
        self._process.kill()
        self._process.wait(WAIT_S)
        self._reading.join(WAIT_S)
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()


@contextlib.contextmanager
def consumers(
    server: Broker, directory: Path, topic: str, group: str, count: int, *settings: str
) -> Iterator[list[ConsoleConsumer]]:
    terminal = Terminal(directory, server.bootstrap)
    started = [ConsoleConsumer(terminal, topic, group, *settings) for _ in range(count)]
    try:
        yield started
    finally:
        for each in started:
            each.close()


def described(server: Broker, group: str) -> list[list[str]]:
    """The rows of kafka-consumer-groups --describe, when there is such a group."""
    result = invoke(server, "kafka-consumer-groups", "--describe", "--group", group)
    lines = [line.split() for line in result.stdout.splitlines() if line]
    if not lines:
        return []
    assert lines[0] == COLUMNS.split()
    return sorted(lines[1:], key=lambda row: row[2])


def owners(server: Broker, group: str) -> list[str]:
    """The members that have partitions, each once."""
    return sorted({row[6] for row in described(server, group)} - {"-"})


def lags(server: Broker, group: str) -> list[str]:
    return [row[5] for row in described(server, group)]


def values(first: int, end: int) -> list[tuple[int, str]]:
    return sorted((p, f"{p}:{number}") for p in range(3) for number in range(first, end))


@pytest.mark.slow
def test_three_consumers_have_a_partition_each_and_two_take_over(
    server: Broker, topic: str, tmp_path: Path
) -> None:
    """Proves P-08. Proves K-05 and K-06 of members of our own."""
    settings = ("session.timeout.ms=6000",)
    with consumers(server, tmp_path, topic, "my-group", 3, *settings) as group:
        wait_until(lambda: len(owners(server, "my-group")) == 3)
        produce(server, topic, 20)
        wait_until(lambda: sum(len(each.seen) for each in group) >= 60)
        assert sorted(row for each in group for row in each.seen) == values(0, 20)
        assert sorted(map(sorted, (each.partitions() for each in group))) == [[0], [1], [2]]
        wait_until(lambda: lags(server, "my-group") == ["0", "0", "0"])
        assert group[0].end(signal.SIGKILL) == -signal.SIGKILL
        produce(server, topic, 5, first=20)
        wait_until(lambda: sum(len(each.seen) for each in group) >= 75)
        assert sorted(row for each in group for row in each.seen) == values(0, 25)
        assert len(group[0].seen) == 20
        assert len(owners(server, "my-group")) == 2


@pytest.mark.slow
def test_groups_read_for_themselves_and_go_on_where_they_were(
    server: Broker, topic: str, tmp_path: Path
) -> None:
    """Proves K-07 and K-08 of members of our own. Whom SIGTERM or Ctrl-C ends has committed."""
    produce(server, topic, 10)
    for group, number in ((f"{topic}-one", signal.SIGTERM), (f"{topic}-two", signal.SIGINT)):
        with consumers(server, tmp_path, topic, group, 1, "auto.commit.interval.ms=60000") as only:
            wait_until(lambda only=only: len(only[0].seen) >= 30)  # type: ignore[misc]
            assert sorted(only[0].seen) == values(0, 10)
            assert lags(server, group) == ["-", "-", "-"]
            assert only[0].end(number) == 128 + number
        assert owners(server, group) == []  # It has left; nobody waits for its session.
        assert lags(server, group) == ["0", "0", "0"]
    produce(server, topic, 5, first=10)
    assert lags(server, f"{topic}-one") == ["5", "5", "5"]
    with consumers(server, tmp_path, topic, f"{topic}-one", 1) as only:
        wait_until(lambda: len(only[0].seen) >= 15)
        assert sorted(only[0].seen) == values(10, 15)
        wait_until(lambda: lags(server, f"{topic}-one") == ["0", "0", "0"])
    assert lags(server, f"{topic}-two") == ["5", "5", "5"]


def test_a_group_with_a_member_of_another_library(
    server: Broker, topic: str, tmp_path: Path
) -> None:
    """Proves K-05 and K-06: whoever leads, the one divides for the other."""
    name = f"group-of-{topic}"
    range_only = {**CLASSIC, "partition.assignment.strategy": "range"}
    with members(server, topic, **range_only, group_id=name) as foreign:
        foreign.add("first")
        foreign.poll_until(lambda: foreign.sizes() == [3])
        with consumers(server, tmp_path, topic, name, 1, "session.timeout.ms=2000") as ours:
            foreign.poll_until(lambda: len(foreign.assigned()["first"]) < 3)
            foreign.poll_until(lambda: len(owners(server, name)) == 2)
            produce(server, topic, 10)
            foreign.poll_until(lambda: len(foreign.everything()) + len(ours[0].seen) >= 30)
            foreign.remove("first")  # So that ours leads, and divides for the next of them.
            wait_until(lambda: len(owners(server, name)) == 1)
            foreign.add("second")
            foreign.poll_until(lambda: len(owners(server, name)) == 2)
            produce(server, topic, 5, first=10)
            foreign.poll_until(lambda: len(foreign.everything()) + len(ours[0].seen) >= 45)
            seen = [(p, f"{p}:{offset}") for p, offset in foreign.everything()]
            assert sorted(seen + ours[0].seen) == values(0, 15)


# --- kafka-consumer-groups


def read(server: Broker, topic: str, group: str) -> list[str]:
    return output(server, "consume", topic, "--group", group, "--format", "%p:%o").split()


def test_offsets_are_moved_and_read_again(server: Broker, topic: str) -> None:
    """Proves K-10 with our own tool."""
    produce(server, topic, 10)
    assert len(read(server, topic, topic)) == 30
    assert read(server, topic, topic) == []
    reset = ("kafka-consumer-groups", "--reset-offsets", "--group", topic)
    plan = output(server, *reset, "--to-earliest", "--topic", f"{topic}:0,1")
    assert [line.split()[2:] for line in plan.splitlines() if topic in line] == [
        ["0", "0"],
        ["1", "0"],
    ]
    assert read(server, topic, topic) == []  # It was only shown.
    output(server, *reset, "--to-offset", "8", "--topic", f"{topic}:1", "--execute")
    assert read(server, topic, topic) == ["1:8", "1:9"]
    output(server, *reset, "--shift-by", "-1", "--all-topics", "--execute")
    assert lags(server, topic) == ["1", "1", "1"]
    assert read(server, topic, topic) == ["0:9", "1:9", "2:9"]
    output(server, *reset, "--by-duration", "P1D", "--all-topics", "--execute")
    assert lags(server, topic) == ["10", "10", "10"]
    output(server, *reset, "--to-datetime", "2999-01-01T00:00:00.000", "--all-topics", "--execute")
    assert lags(server, topic) == ["0", "0", "0"]
    gone = ("kafka-consumer-groups", "--delete-offsets", "--group", topic, "--topic", f"{topic}:2")
    assert f"deleting offsets from group {topic}." in output(server, *gone)
    assert [row[2] for row in described(server, topic)] == ["0", "1"]
    names = ("kafka-consumer-groups", "--list")
    assert topic in output(server, *names).splitlines()
    assert f"{topic} Empty" in " ".join(output(server, *names, "--state").split())
    said = output(server, "kafka-consumer-groups", "--delete", "--group", topic)
    assert said == f"Deletion of requested consumer groups ('{topic}') was successful.\n"
    assert topic not in output(server, *names).splitlines()


def test_a_group_that_is_active_is_left_alone(server: Broker, topic: str) -> None:
    produce(server, topic, 1)
    groups = "kafka-consumer-groups"
    with members(server, topic, **CLASSIC, group_id=topic) as group:
        group.add("a")
        group.poll_until(lambda: len(group.everything()) == 3)
        for arguments, said in [
            (("--reset-offsets", "--to-earliest", "--topic", topic), "but the current state is"),
            (("--delete",), f"* Group '{topic}' could not be deleted due to: the group has"),
            (("--delete-offsets", "--topic", topic), "Encountered some partition-level error"),
        ]:
            result = invoke(server, groups, "--group", topic, *arguments)
            assert (result.exit_code, said in result.stderr) == (1, True), result.output
        (_, row) = output(server, groups, "--describe", "--group", topic, "--state").split("\n")[
            1:3
        ]
        assert [*row.split()[:1], *row.split()[3:]] == [topic, "range", "Stable", "1"]
        who = output(server, groups, "--describe", "--group", topic, "--members", "--verbose")
        assert f"{topic}:0,1,2" in who
        told = json.loads(output(server, "groups", "describe", topic, "--json"))
        assert (told["state"], told["assignor"], len(told["members"])) == ("Stable", "range", 1)
    result = invoke(server, groups, "--describe", "--group", "nosuch")
    assert "Error: Consumer group 'nosuch' does not exist." in result.stderr


def test_a_group_of_the_newer_protocol(server: Broker, topic: str) -> None:
    modern = {"group.protocol": "consumer"}
    with members(server, topic, **modern, group_id=topic) as group:
        group.add("a")
        group.poll_until(lambda: group.sizes() == [3])
        assert len(owners(server, topic)) == 1
        shown = output(server, "groups", "describe", topic)
        assert shown.startswith(f"group {topic}: Stable, 1 members, divided by uniform\n")


# --- entrepot groups


def test_groups_for_people(server: Broker, topic: str) -> None:
    produce(server, topic, 10)
    assert len(read(server, topic, topic)) == 30
    listed = [json.loads(line) for line in output(server, "groups", "list", "--json").splitlines()]
    assert {"group": topic, "state": "Empty", "protocol": "classic"} in listed
    assert [
        line.split()[1:5] for line in output(server, "groups", "describe", topic).splitlines()[2:]
    ] == [[str(partition), "10", "10", "0"] for partition in range(3)]
    reset = ("groups", "reset-offsets", topic)
    shown = invoke(server, *reset, "--to", "earliest")
    assert (shown.exit_code, shown.stderr) == (0, "nothing is changed: --yes does it\n")
    assert read(server, topic, topic) == []
    assert "reset" in output(server, *reset, "--to", "-2", "--topic", f"{topic}:0,2", "--yes")
    assert read(server, topic, topic) == ["0:8", "0:9", "2:8", "2:9"]
    far = invoke(server, *reset, "--to", "99", "--yes")
    assert "has offsets 0 to 10: 10 instead of 99" in far.stderr
    assert output(server, "groups", "delete", topic) == f"deleted {topic}\n"
    for arguments in (("describe",), ("delete",)):
        result = invoke(server, "groups", *arguments, topic)
        assert (result.exit_code, "(GROUP_ID_NOT_FOUND)" in result.stderr) == (1, True)
    result = invoke(server, *reset, "--to", "5")
    assert "has read nothing yet" in result.stderr


# --- kafka-configs


def configs(server: Broker, *arguments: str) -> list[str]:
    return output(server, "kafka-configs", *arguments).splitlines()


def test_settings_of_a_topic(server: Broker, topic: str) -> None:
    which = ("--entity-type", "topics", "--entity-name", topic)
    added = "retention.ms=60000,cleanup.policy=[compact,delete]"
    said = configs(server, "--alter", *which, "--add-config", added)
    assert said == [f"Completed updating config for topic {topic}."]
    head, policy, retention = configs(server, "--describe", *which)
    assert head == f"Dynamic configs for topic {topic} are:"
    assert policy.startswith("  cleanup.policy=compact,delete sensitive=false synonyms={DYNAMIC_")
    assert retention.startswith("  retention.ms=60000 sensitive=false synonyms={DYNAMIC_TOPIC_")
    configs(server, "--alter", *which, "--delete-config", "retention.ms,cleanup.policy")
    assert configs(server, "--describe", "--topic", topic) == [head]
    assert len(configs(server, "--describe", *which, "--all")) > 10
    refused = invoke(server, "kafka-configs", "--alter", *which, "--add-config", "no.such=1")
    assert (refused.exit_code, "(INVALID_CONFIG)" in refused.stderr) == (1, True)


def test_settings_of_a_broker(server: Broker) -> None:
    which = ("--entity-type", "brokers", "--entity-name", "1")
    assert any("  node.id=1 " in line for line in configs(server, "--describe", *which, "--all"))
    refused = invoke(server, "kafka-configs", "--alter", *which, "--add-config", "log.dirs=x")
    assert (refused.exit_code, "Cannot update these configs" in refused.stderr) == (1, True)
    everywhere = ("--entity-type", "brokers", "--entity-default")
    configs(server, "--alter", *everywhere, "--add-config", "log.cleaner.delete.retention.ms=7")
    head, retention = configs(server, "--describe", *everywhere)
    assert head == "Default configs for brokers in the cluster are:"
    synonyms = "DYNAMIC_DEFAULT_BROKER_CONFIG:log.cleaner.delete.retention.ms=7"
    expected = f"  log.cleaner.delete.retention.ms=7 sensitive=false synonyms={{{synonyms}}}"
    assert retention == expected
    name = "log.cleaner.delete.retention.ms"
    configs(server, "--alter", *everywhere, "--delete-config", name)
    assert configs(server, "--describe", *everywhere) == [head]


def test_quotas_and_passwords(server: Broker) -> None:
    ana = ("--entity-type", "users", "--entity-name", "ana")
    anybody = ("--entity-type", "clients", "--entity-default")
    password = "SCRAM-SHA-256=[iterations=4096,password=a,b]"
    added = f"producer_byte_rate=1000,{password}"
    assert configs(server, "--alter", *ana, "--add-config", added) == [
        "Completed updating config for user ana."
    ]
    assert configs(server, "--alter", *anybody, "--add-config", "consumer_byte_rate=7") == [
        "Completed updating default config for clients in the cluster."
    ]
    both = (*ana, *anybody)
    configs(server, "--alter", *both, "--add-config", "request_percentage=50")
    assert configs(server, "--describe", "--entity-type", "users") == [
        "Quota configs for user-principal 'ana' are producer_byte_rate=1000.0",
        "SCRAM credential configs for user-principal 'ana' are SCRAM-SHA-256=iterations=4096",
    ]
    assert configs(server, "--describe", "--entity-type", "clients") == [
        "Quota configs for the default client-id are consumer_byte_rate=7.0"
    ]
    assert configs(server, "--describe", *both) == [
        "Quota configs for user-principal 'ana', the default client-id are request_percentage=50.0"
    ]
    configs(server, "--alter", *ana, "--delete-config", "producer_byte_rate,SCRAM-SHA-256")
    configs(server, "--alter", *anybody, "--delete-config", "consumer_byte_rate")
    assert configs(server, "--describe", "--entity-type", "users") == []
    assert configs(server, "--describe", "--entity-type", "clients") == []


@pytest.mark.parametrize("name", ["kafka-consumer-groups", "kafka-configs"])
def test_names_with_and_without_sh(name: str, tmp_path: Path) -> None:
    """Proves P-09 of these names."""
    script, with_suffix = ROOT / "bin" / name, ROOT / "bin" / f"{name}.sh"
    assert with_suffix.resolve() == script
    assert os.access(with_suffix, os.X_OK)
    environment = Terminal(tmp_path, "").environment
    ran = subprocess.run(
        [script, "--help"], env=environment, capture_output=True, text=True, check=True
    )
    assert f"Usage: entrepot {name}" in ran.stdout
