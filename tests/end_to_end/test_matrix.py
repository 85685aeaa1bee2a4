"""A message written in any protocol is read in every other, by their own clients."""

from collections.abc import Iterator

import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.matrix import READERS, SETTINGS, WRITERS, cross, differences


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings=SETTINGS) as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("writer", WRITERS)
def test_a_message_crosses_whole(server: Broker, writer: str, reader: str) -> None:
    expected, came = cross(server, writer, reader)
    assert differences(expected, came) == []
