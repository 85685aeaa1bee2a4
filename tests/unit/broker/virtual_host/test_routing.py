"""Events are recorded first, then applied; or neither."""

import errno

import pytest

from entrepot.broker.catalog import cluster_id_record
from entrepot.broker.router.event import Exchange, ExchangeDeclared, ExchangeType
from entrepot.broker.virtual_host.routing import Routing
from entrepot.core.errors import StorageError
from tests.unit.broker.virtual_host.bed import Host
from tests.unit.log.bed import simulated

DURABLE = ExchangeDeclared(Exchange("durable", ExchangeType.FANOUT))
TRANSIENT = ExchangeDeclared(Exchange("transient", ExchangeType.FANOUT, durable=False))


@simulated
async def test_whether_there_is_something_to_wait_for(bed: Host) -> None:
    await bed.start()
    routing = Routing("/", bed.broker)
    assert bed.call(routing.change, (DURABLE,)) is True
    assert bed.call(routing.change, (TRANSIENT,)) is False
    assert bed.call(routing.change, (TRANSIENT,), cluster_id_record("x")) is True
    assert bed.call(routing.change, ()) is True  # Somebody else's may be on its way.
    await bed.do(routing.permanent())


@simulated
async def test_what_cannot_be_recorded_is_not_changed(bed: Host) -> None:
    await bed.start()
    routing = Routing("/", bed.broker)
    bed.disk.fail_next("write", errno.ENOSPC, "*", 2)
    with pytest.raises(StorageError):
        bed.call(routing.change, (TRANSIENT, DURABLE))
    assert routing.router.exchange("transient") is None
    bed.call(lambda: routing.change((TRANSIENT, DURABLE), is_tolerant=True))
    assert routing.router.exchange("durable") is not None
