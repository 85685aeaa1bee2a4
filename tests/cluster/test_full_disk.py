"""A follower whose disk is full: the others go on without it, and it comes back by itself."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.lecture_table import TAKEN, produce, read
from tests.cluster.test_promises import SETTINGS, create, leader_of, others, until
from tests.cluster.world import World, has_etcd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not has_etcd(), reason="needs etcd"),
    pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler"),
]
SOURCE = Path(__file__).parent.parent / "end_to_end" / "faulty_disk.c"


@contextmanager
def environment(**more: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(more)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def test_a_full_disk_on_one_follower(tmp_path: Path) -> None:
    library, faults = tmp_path / "faulty.so", tmp_path / "faults"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    with World(tmp_path / "world", 3, SETTINGS) as world:
        create(world, "full")
        create(world, "well")
        leader = leader_of(world, "full")
        follower = others(world, leader)[0]
        world.kill(follower)
        with environment(LD_PRELOAD=str(library), FAULTY_DISK=str(faults)):
            world.begin(follower)
        assert world.wait_healed(["full", "well"]) == ""
        faults.write_text(f"write {errno.ENOSPC} partitions/full-0\n")
        values = [b"%d" % number for number in range(20)]
        assert [produce(world, "full", "all", value) for value in values] == [TAKEN] * 20
        assert produce(world, "well", "all", b"x") == TAKEN

        def in_sync(topic: str) -> list[int]:
            return sorted(world.metadata().topics[topic].partitions[0].isrs)

        two = sorted(node.number for node in world.nodes if node is not follower)
        until(lambda: in_sync("full") == two)
        assert in_sync("well") == [1, 2, 3]
        assert "No space left on device" in follower.broker.log_path.read_text()
        faults.unlink()
        assert world.wait_healed(["full"]) == ""
        world.kill(leader)
        until(lambda: leader_of(world, "full") is not leader)
        assert read(world, "full") == values
