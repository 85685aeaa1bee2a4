"""Who is running here, and whose files these are."""

import json
import os
from pathlib import Path

from entrepot.cli.presence import (
    ENDPOINTS,
    PID,
    announced,
    is_running,
    process_id,
    remove_leftovers,
)
from entrepot.log.disk import FileDisk
from entrepot.log.layout import LOCK


def test_announced_for_as_long_as_it_lasts(tmp_path: Path) -> None:
    disk = FileDisk(str(tmp_path))
    disk.lock(LOCK)
    with announced(tmp_path, {"kafka": ("127.0.0.1", 9092)}):
        assert json.loads((tmp_path / ENDPOINTS).read_text()) == {
            "kafka": {"host": "127.0.0.1", "port": 9092}
        }
        assert process_id(tmp_path) == os.getpid()
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK]
    disk.close()


def test_leftovers_name_nobody_and_are_removed(tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    (tmp_path / PID).write_text("1\n")
    (tmp_path / ENDPOINTS).write_text("{}")
    assert not is_running(tmp_path)
    assert process_id(tmp_path) is None
    remove_leftovers(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [LOCK]


def test_a_running_brokers_files_stay(tmp_path: Path) -> None:
    disk = FileDisk(str(tmp_path))
    disk.lock(LOCK)
    (tmp_path / PID).write_text("123\n")
    remove_leftovers(tmp_path)
    assert is_running(tmp_path)
    assert process_id(tmp_path) == 123
    disk.close()
    assert not is_running(tmp_path)


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    assert not is_running(tmp_path / "nosuch")
    remove_leftovers(tmp_path / "nosuch")
