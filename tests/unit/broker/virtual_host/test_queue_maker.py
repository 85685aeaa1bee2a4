"""Lanes: as many as a queue has priorities, of memory or of the log."""

from entrepot.broker.queue.log_lane import LogLane
from entrepot.broker.queue.memory_lane import MemoryLane
from entrepot.broker.queue.settings import QueueSettings
from entrepot.broker.virtual_host.queue_maker import QueueMaker
from entrepot.gateway.rabbitmq.dialect import RabbitDialect
from tests.unit.broker.virtual_host.bed import FORMATS, Host
from tests.unit.log.bed import simulated


@simulated
async def test_lanes(bed: Host) -> None:
    await bed.start()
    await bed.create("t", 3)
    maker = QueueMaker(bed.broker, bed.clock, FORMATS, RabbitDialect())
    in_memory = bed.call(maker.memory_lanes, QueueSettings(priority_max=4))
    assert [type(lane) for lane in in_memory] == [MemoryLane] * 5
    await bed.do(maker.ledgers.prepare())
    in_log = bed.call(maker.log_lanes, bed.broker.topic("t"))
    assert [type(lane) for lane in in_log] == [LogLane] * 3
