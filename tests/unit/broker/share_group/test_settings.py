import pytest

from entrepot.broker.share_group.settings import (
    CATALOG_KIND,
    SETTINGS,
    GroupSettingsView,
    check_settings,
    settings_record,
)
from entrepot.core.errors import InvalidConfig


def folded(*rows: tuple[str, dict[str, str]]) -> GroupSettingsView:
    view = GroupSettingsView()
    for group, values in rows:
        record = settings_record(group, values)
        assert record.key is not None
        kind, _, name = record.key.decode().partition(":")
        assert kind == CATALOG_KIND
        view.apply(name, record.value)
    return view


def test_the_defaults_are_kafkas() -> None:
    defaults = folded().of("anybody")
    assert (defaults.lock_ms, defaults.deliveries_max, defaults.locks_max) == (30_000, 5, 2_000)
    assert (defaults.reset, defaults.is_committed, defaults.can_renew) == ("latest", False, True)
    assert (defaults.heartbeat_ms, defaults.session_ms) == (5_000, 45_000)
    assert defaults.dead_letter_topic == ""
    check_settings({name: setting.default for name, setting in SETTINGS.items()})


def test_the_newest_counts() -> None:
    view = folded(
        ("a:b", {"share.delivery.count.limit": "7"}),
        ("a:b", {"share.isolation.level": "read_committed"}),
        ("c", {"share.delivery.count.limit": "9"}),
        ("c", {}),
    )
    assert (view.of("a:b").deliveries_max, view.of("a:b").is_committed) == (5, True)
    assert view.texts("a:b") == {"share.isolation.level": "read_committed"}
    assert (view.of("c").deliveries_max, view.texts("c"), view.names()) == (5, {}, ["a:b"])


@pytest.mark.parametrize(
    ("text", "ms"),
    [("P1D", 86_400_000), ("PT1H2M", 3_720_000), ("P1DT0.5S", 86_400_500), ("PT90M", 5_400_000)],
)
def test_durations(text: str, ms: int) -> None:
    values = {"share.auto.offset.reset": f"by_duration:{text}"}
    check_settings(values)
    assert folded(("g", values)).of("g").reset_ms == ms


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("share.auto.offset.reset", "by_duration:"),
        ("share.auto.offset.reset", "by_duration:P"),
        ("share.auto.offset.reset", "by_duration:-P1D"),
        ("share.auto.offset.reset", "sometime"),
        ("share.record.lock.duration.ms", "0"),
        ("share.record.lock.duration.ms", "long"),
        ("share.delivery.count.limit", "0"),
        ("share.isolation.level", "read_everything"),
        ("errors.deadletterqueue.topic.name", "__share_group_state"),
        ("errors.deadletterqueue.topic.name", "no topic"),
        ("errors.deadletterqueue.copy.record.enable", "perhaps"),
        ("share.session.timeout.ms", "5000"),  # As long as between two heartbeats.
        ("retention.ms", "1"),
    ],
)
def test_what_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig):
        check_settings({name: value})
