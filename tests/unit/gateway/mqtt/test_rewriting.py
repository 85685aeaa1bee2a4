"""Rules that change topics: what they match, what comes out, and on which occasion."""

import pytest

from entrepot.client.mqtt import MqttRefused
from entrepot.gateway.mqtt.rewriting import InvalidRule, On, Rewriting, rule
from entrepot.server import StartError
from entrepot.wire.mqtt.packets import Subscription
from entrepot.wire.mqtt.reasons import MqttError, Reason
from tests.unit.client.test_mqtt import Stage, play


@pytest.mark.parametrize(
    ("match", "to", "topic", "changed"),
    [
        ("a/b", "c", "a/b", "c"),
        ("a/b", "c", "a/b/c", None),
        ("a/b", "c", "a", None),
        ("old/+/state/#", "new/$1/$2", "old/7/state/heat", "new/7/heat"),
        ("old/+/state/#", "new/$1/$2", "old/7/state/heat/in", "new/7/heat/in"),
        ("old/+/state/#", "new/$1/$2", "old/7/state", "new/7"),
        ("old/+/state/#", "new/$1/$2", "old/7/other/heat", None),
        ("+/+", "$2/$1", "a/b", "b/a"),
        ("+/+", "x$2y/$1/$1", "a/b", "xby/a/a"),
        ("#", "all/$1", "a/b", "all/a/b"),
        ("a/#", "b", "a/x/y", "b"),
        ("a//b", "c", "a//b", "c"),
        ("a/+/b", "c/$1/d", "a//b", "c//d"),
        # Filters.
        ("old/+/state/#", "new/$1/$2", "old/+/state/#", "new/+/#"),
        ("old/+/state/#", "new/$1/$2", "old/+/state/heat", "new/+/heat"),
        ("old/+/state/#", "new/$1/$2", "old/#", None),
        ("old/+", "new/$1", "old/#", None),
        ("old/#", "new/$1", "old/#", "new/#"),
    ],
)
def test_a_rule(match: str, to: str, topic: str, changed: str | None) -> None:
    assert rule(match, to, On.ALL).applied(topic) == changed


@pytest.mark.parametrize(
    ("match", "to"),
    [
        ("a/#/b", "c"),
        ("a+", "c"),
        ("", "c"),
        ("a", ""),
        ("a", "b/#"),
        ("a", "b/+"),
        ("$SYS/#", "b"),
        ("a/+", "b/$2"),
        ("a", "b/$1"),
    ],
)
def test_a_rule_that_is_none(match: str, to: str) -> None:
    with pytest.raises(InvalidRule):
        rule(match, to, On.ALL)


def test_the_first_rule_counts_and_only_once() -> None:
    rules = Rewriting([rule("a/#", "b/$1", On.ALL), rule("b/#", "c/$1", On.ALL)])
    assert rules.topic("a/x") == "b/x"
    assert rules.topic("b/x") == "c/x"
    assert rules.topic("z") == "z"


def test_publishing_and_subscribing_may_have_rules_of_their_own() -> None:
    rules = Rewriting([rule("a/#", "in/$1", On.PUBLISH), rule("a/#", "out/$1", On.SUBSCRIBE)])
    assert (rules.topic("a/x"), rules.filter("a/x")) == ("in/x", "out/x")


def test_the_brokers_topics_are_not_changed_and_shared_filters_are() -> None:
    rules = Rewriting([rule("#", "all/$1", On.ALL)])
    assert rules.topic("$SYS/x") == "$SYS/x"
    assert rules.filter("$SYS/#") == "$SYS/#"
    assert rules.filter("$queue/jobs") == "$queue/jobs"
    assert rules.filter("$share/g/a/#") == "$share/g/all/a/#"


def test_what_becomes_too_deep_is_refused() -> None:
    rules = Rewriting([rule("a/#", "b/$1/$1", On.ALL)])
    deep = "a/" + "/".join(["x"] * 150)
    with pytest.raises(MqttError):
        rules.topic(deep)
    with pytest.raises(MqttError):
        rules.filter(deep)


SETTINGS = {
    "mqtt": {
        "rewrite": [
            {"match": "old/+/state/#", "to": "new/$1/$2"},
            {"match": "hidden/#", "to": "$1", "on": "publish"},
        ]
    }
}


def test_messages_and_subscriptions_are_changed(seed: int) -> None:
    """Proves T-13."""

    async def story(stage: Stage) -> None:
        listener, speaker = await stage.client("listener"), await stage.client("speaker")
        await listener.subscribe([Subscription("old/+/state/#", 1)])
        for topic in ("old/7/state/heat", "new/8/cold"):
            await speaker.publish(topic, b"x", 1, retain=True)
            came = await listener.receive()
            listener.acknowledge(came)
            assert came.topic == topic.replace("old/7/state", "new/7")
        assert await listener.unsubscribe(["old/+/state/#"]) == (Reason.SUCCESS,)
        await listener.subscribe([Subscription("new/7/heat", 1)])
        assert (await listener.receive()).is_retained
        with pytest.raises(MqttRefused):  # Rights are asked for the new name.
            await speaker.publish("hidden/$SYS/broker", b"x", 1)

    play(seed, story, SETTINGS)


def test_a_wrong_rule_keeps_the_broker_from_starting() -> None:
    async def story(stage: Stage) -> None:
        raise AssertionError("it has started")

    with pytest.raises(StartError, match=r"mqtt\.rewrite: b/\$1: \$1, but a has 0 wildcards"):
        play(0, story, {"mqtt": {"rewrite": [{"match": "a", "to": "b/$1"}]}})
