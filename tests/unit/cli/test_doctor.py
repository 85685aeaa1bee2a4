"""`entrepot doctor`: what each check says about a machine that is fine, and one that is not."""

import json
import os
import resource
import socket
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner

from entrepot.cli import doctor_checks as checks
from entrepot.cli.doctor import doctor
from entrepot.cli.doctor_checks import Finding
from entrepot.config import Config, Ports
from entrepot.core import limits

NO_PORTS = Ports(**dict.fromkeys(Ports.__dataclass_fields__))


def only(findings: checks.Findings) -> Finding:
    (found,) = findings
    return found


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    path.mkdir(mode=0o700)
    return path


def test_a_directory_of_its_own(directory: Path) -> None:
    found = next(checks.data_directory(directory))
    assert (found.state, found.advice) == ("ok", "")
    assert found.text.endswith(", new")
    found = next(checks.data_directory(directory / "none" / "yet"))
    assert (found.state, found.text) == ("ok", f"{directory}/none/yet will be made")


def test_directories_that_are_none_or_open_to_others(directory: Path) -> None:
    file = directory / "file"
    file.touch()
    assert next(checks.data_directory(file)).state == "bad"
    directory.chmod(0o755)
    found = next(checks.data_directory(directory))
    assert found.state == "warn"
    assert "755" in found.text


def test_a_directory_of_somebody_else(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To root everything is allowed, so the system is not asked."""
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert next(checks.data_directory(directory)).state == "bad"
    assert next(checks.data_directory(directory / "new")).state == "bad"
    assert [*checks.sync(directory)] == []
    assert [*checks.sequence(directory)] == []


@pytest.mark.parametrize(
    ("kind", "state"),
    [("ext4", "ok"), ("tmpfs", "bad"), ("overlay", "warn"), ("nfs4", "warn"), ("", None)],
)
def test_file_systems(
    kind: str, state: str | None, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_kind_of", lambda _: kind)
    found = [each.state for each in checks.data_directory(directory)]
    assert found == ["ok", state] if state else ["ok"]


class Room(NamedTuple):
    f_bavail: int
    f_blocks: int = 1_000_000
    f_frsize: int = limits.MIB


@pytest.mark.parametrize(("free", "state"), [(500_000, "ok"), (40_000, "warn"), (511, "bad")])
def test_room(free: int, state: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: Room(free))
    assert only(checks.disk(directory / "not" / "yet")).state == state


@pytest.mark.parametrize(("took", "state"), [(0.001, "ok"), (0.05, "warn"), (0.5, "bad")])
def test_syncs(took: float, state: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_sync_times", lambda _: [took / 2, took, 3 * took])
    found = only(checks.sync(directory))
    assert found.state == state
    assert f"{3_000 * took:.2f} ms at most" in found.text


def test_syncs_are_measured_and_leave_nothing(directory: Path) -> None:
    times = checks._sync_times(directory)
    assert len(times) == checks.SYNCS
    assert all(each > 0 for each in times)
    assert [*directory.iterdir()] == []


@pytest.mark.parametrize(("speed", "state"), [(500, "ok"), (10, "warn"), (1, "bad")])
def test_sequences(
    speed: int, state: str, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_sequence_speeds", lambda _: (speed << 20, 2_000 << 20))
    found = only(checks.sequence(directory))
    assert found.state == state
    assert found.text == f"writes {speed} MiB/s, reads 2,000 MiB/s in sequence"


def test_sequences_are_measured_and_leave_nothing(directory: Path) -> None:
    """Proves L-05 in part: how fast the disk is in sequence is reported."""
    written, read = checks._sequence_speeds(directory)
    assert written > 0
    assert read > 0
    assert [*directory.iterdir()] == []


@pytest.mark.parametrize(
    ("hard", "state"),
    [(resource.RLIM_INFINITY, "ok"), (1_000_000, "ok"), (4_096, "warn"), (1_024, "bad")],
)
def test_descriptors(hard: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, hard))
    assert only(checks.descriptors()).state == state


@pytest.mark.parametrize(("free", "state"), [(8_192, "ok"), (300, "warn"), (100, "bad")])
def test_memory(free: int, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "_memory_free", lambda: (free * limits.MIB, ""))
    assert only(checks.memory()).state == state


@pytest.mark.parametrize(
    ("now_s", "follows", "state"),
    [(1.8e9, True, "ok"), (1.8e9, None, "ok"), (1.8e9, False, "warn"), (0.0, True, "bad")],
)
def test_the_clock(
    now_s: float, follows: bool | None, state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "_is_synchronised", lambda: follows)
    assert only(checks.clock(now_s)).state == state


def test_ports(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
        probe.close()
        port = taken.getsockname()[1]
        ports = {"kafka": port, "http": free, "mqtt": 0}  # 0: any free one.
        config = Config(host="127.0.0.1", ports=Ports(**(vars_of(NO_PORTS) | ports)))
        found = only(checks.ports(config, directory))
        assert found.state == "bad"
        assert f"{port} (kafka)" in found.text
        assert str(free) not in found.text
        # It is the broker's that runs there.
        monkeypatch.setattr(checks, "is_running", lambda _: True)
        ends = {"kafka": {"host": "127.0.0.1", "port": port}}
        (directory / checks.ENDPOINTS).write_text(json.dumps(ends))
        found = only(checks.ports(config, directory))
        assert found.state == "ok"
        assert str(free) in found.text


def vars_of(ports: Ports) -> dict[str, Any]:
    return {name: getattr(ports, name) for name in Ports.__dataclass_fields__}


def test_java_is_not_asked_for_without_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "find_spec", lambda _: None)
    found = only(checks.java())
    assert (found.state, "not needed" in found.text) == ("ok", True)
    assert list(checks.decoder()) == []


@pytest.mark.parametrize(("has_loop", "state"), [(True, "ok"), (False, "warn")])
def test_a_decoder_that_is_not_compiled(
    monkeypatch: pytest.MonkeyPatch, has_loop: bool, state: str
) -> None:
    there = {"pyspark", "entrepot.spark._columns"} if has_loop else {"pyspark"}
    monkeypatch.setattr(checks, "find_spec", lambda name: name if name in there else None)
    found = only(checks.decoder())
    assert (found.state, "not compiled" in found.text) == (state, not has_loop)
    assert bool(found.advice) is not has_loop


def run(arguments: list[str], states: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    made = [Finding(f"check-{state}", state, "text", "advice") for state in states]
    monkeypatch.setattr(checks, "findings", lambda config, directory: iter(made))
    return CliRunner().invoke(doctor, arguments)


def test_only_what_is_bad_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    assert run([], ["ok", "warn"], monkeypatch).exit_code == 0
    result = run([], ["ok", "bad", "warn"], monkeypatch)
    assert result.exit_code == 1
    lines = result.output.splitlines()
    assert lines[0] == "ok    check-ok     text"
    assert lines[-1].strip() == "advice"
    result = run(["--json"], ["ok", "bad"], monkeypatch)
    assert [json.loads(line)["state"] for line in result.output.splitlines()] == ["ok", "bad"]


def test_a_check_that_fails_does_not_end_the_others(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> checks.Findings:
        raise PermissionError(13, "Permission denied")
        yield

    monkeypatch.setattr(checks, "memory", broken)
    found = {each.name: each for each in checks.findings(Config(ports=NO_PORTS), directory)}
    assert (found["memory"].state, "Permission denied" in found["memory"].text) == ("warn", True)
    assert {"python", "build", "data", "disk", "sync", "sequence", "ports", "java"} <= {*found}
