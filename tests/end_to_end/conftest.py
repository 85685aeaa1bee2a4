"""A broker that tests share which do it no harm. Each keeps to topics of its own."""

from collections.abc import Iterator

import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.bare import BareClient


@pytest.fixture(scope="session")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started


@pytest.fixture
def client(server: Broker) -> Iterator[BareClient]:
    with BareClient(server) as connected:
        yield connected
