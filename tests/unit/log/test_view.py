"""A saved view: taken up where it is in today's layout, and else folded from the batches."""

from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from entrepot.core.batch import read_header
from entrepot.core.marker import Marker, build_marker
from entrepot.log.isolation import Isolation
from entrepot.log.markers import Markers
from entrepot.log.producers import Producers
from entrepot.log.view import PartitionView, fold


def snapshot(*markers: int) -> bytes:
    view = PartitionView(Producers(), Isolation(), Markers())
    for offset in markers:
        view.markers.note(offset)
    return view.snapshot()


@pytest.mark.parametrize(
    ("state", "begun"),
    [
        (snapshot(1, 3), 5),
        (b"", 5),  # Nothing was there to remember.
        (msgspec.msgpack.encode([b"", [], []]), 0),  # Before markers were counted.
    ],
)
def test_a_saved_view(state: bytes, begun: int) -> None:
    asked: list[int] = []
    marker = (6).to_bytes(8, "big") + build_marker(Marker(7, 0, committed=True), now_ms=0)[8:]

    def headers(offset: int) -> Any:
        asked.append(offset)
        yield read_header(marker), marker

    saved = SimpleNamespace(offset=5, state=state)
    opened: Any = SimpleNamespace(saved=saved, partition=SimpleNamespace(headers=headers))
    view = fold(opened)
    assert asked == [begun]
    assert view.markers.between(0, 10) == 1 + (2 if state == snapshot(1, 3) else 0)
