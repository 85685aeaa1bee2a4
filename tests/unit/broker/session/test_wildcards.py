"""The examples of the lectures: which names a filter matches, and which filters there are."""

import pytest

from entrepot.broker.subject.filter import check_path_filter
from entrepot.core.errors import InvalidName
from tests.unit.broker.session.bed import Sessions, on
from tests.unit.log.bed import simulated


async def _matched(bed: Sessions, filter: str, *names: str) -> list[str]:
    """The names whose messages reach somebody who subscribes to the filter."""
    check_path_filter(filter)
    peer = await bed.connect(filter, filter, quality=0, expiry_ms=0)
    await bed.tell(*[on(name, b"", 0) for name in names])
    return [name for name, _ in peer.direct]


@simulated
async def test_one_level(bed: Sessions) -> None:
    await bed.start()
    tennis = ("sport/tennis/player1", "sport/tennis/player2", "sport/tennis/player1/ranking")
    assert await _matched(bed, "sport/tennis/+", *tennis) == [*tennis[:2]]
    assert await _matched(bed, "sport/+", "sport", "sport/") == ["sport/"]
    assert await _matched(bed, "+/tennis/#", *tennis, "tennis") == [*tennis]


@simulated
async def test_an_empty_level_is_a_level(bed: Sessions) -> None:
    await bed.start()
    for filter, matches in (("+/+", True), ("/+", True), ("+", False)):
        assert bool(await _matched(bed, filter, "/finance")) is matches


@simulated
async def test_all_levels(bed: Sessions) -> None:
    await bed.start()
    player = "sport/tennis/player1"
    names = (player, f"{player}/ranking", f"{player}/score/wimbledon", "sport/tennis", "sport")
    assert await _matched(bed, f"{player}/#", *names) == [*names[:3]]
    assert await _matched(bed, "sport/#", *names) == [*names]
    assert await _matched(bed, "#", *names) == [*names]


@simulated
async def test_names_of_the_broker_are_not_matched_by_leading_wildcards(bed: Sessions) -> None:
    await bed.start()
    names = ("$SYS/monitor/Clients", "$SYS", "a")
    assert await _matched(bed, "#", *names) == ["a"]
    assert await _matched(bed, "+/monitor/Clients", *names) == []
    assert await _matched(bed, "+", *names) == ["a"]
    assert await _matched(bed, "$SYS/#", *names) == [*names[:2]]
    assert await _matched(bed, "$SYS/monitor/+", *names) == [*names[:1]]


@pytest.mark.parametrize("text", ["sport+", "sport/tennis#", "sport/tennis/#/ranking"])
def test_what_is_no_filter(text: str) -> None:
    with pytest.raises(InvalidName):
        check_path_filter(text)


@simulated
async def test_the_stock_exchange(bed: Sessions) -> None:
    await bed.start()
    london = "Exchange/Europe/London/Technology"
    names = (f"{london}/FooBar", "Exchange/Europe/London/Banks/X", "Exchange/Europe/Paris/FooBar")
    assert await _matched(bed, f"{london}/+", *names) == [*names[:1]]
    assert await _matched(bed, "Exchange/Europe/#", *names) == [*names]
    await bed.queue("q")
    await bed.bind("amq.topic", "q", "Exchange.Europe.London.Technology.*")
    await bed.tell(*[on(name, name.encode()) for name in names])
    assert bed.bodies("q") == [names[0].encode()]
