"""Brokers that tests share which do them no harm. Each keeps to topics of its own."""

from collections.abc import Iterator

import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.bare import BareClient
from tests.end_to_end.secured import House, opened


@pytest.fixture(scope="session")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started


@pytest.fixture
def client(server: Broker) -> Iterator[BareClient]:
    with BareClient(server) as connected:
        yield connected


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One that asks who its clients are, and what they may do."""
    with opened(tmp_path_factory.mktemp("house")) as house:
        yield house
