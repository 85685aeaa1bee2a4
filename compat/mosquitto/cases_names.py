"""Which names a filter matches: the specification's examples, and what begins with $."""

from collections.abc import Sequence

from packets import V5, V311
from stage import Stage, only


def _matches(stage: Stage, filter: str, names: Sequence[str]) -> None:
    reader = stage.subscriber("reader", (filter, 0))
    writer = stage.client("writer")
    for name in names:
        writer.publish(name, "m")
    writer.publish(names[0], "the end", 1, 9)
    writer.rest()
    found = [each.split(" ")[3] for each in reader.rest() if "the end" not in each]
    stage.see(filter, found)


SPORT = (
    "sport/tennis/player1",
    "sport/tennis/player2",
    "sport/tennis/player1/ranking",
    "sport/tennis/player1/score/wimbledon",
    "sport/tennis",
    "sport",
    "sport/",
    "/sport",
    "/finance",
    "finance",
    "a//b",
    "/",
    "//",
    "Sport",
)


def one_level(stage: Stage) -> None:
    """sport/tennis/+ matches one level"""
    _matches(stage, "sport/tennis/+", SPORT)


def one_level_may_be_empty(stage: Stage) -> None:
    """sport/+ matches sport/ and not sport"""
    _matches(stage, "sport/+", SPORT)


def first_level(stage: Stage) -> None:
    """+ matches one level alone"""
    _matches(stage, "+", SPORT)


def both_wildcards(stage: Stage) -> None:
    """+/tennis/# has both wildcards"""
    _matches(stage, "+/tennis/#", SPORT)


def finance_two(stage: Stage) -> None:
    """+/+ matches /finance"""
    _matches(stage, "+/+", SPORT)


def finance_slash(stage: Stage) -> None:
    """/+ matches /finance"""
    _matches(stage, "/+", SPORT)


def all_levels(stage: Stage) -> None:
    """sport/tennis/player1/# matches its parent and all below"""
    _matches(stage, "sport/tennis/player1/#", SPORT)


def parent(stage: Stage) -> None:
    """sport/# matches sport"""
    _matches(stage, "sport/#", SPORT)


def everything(stage: Stage) -> None:
    """# matches everything"""
    _matches(stage, "#", SPORT)


def empty_levels(stage: Stage) -> None:
    """a/+/b and empty levels"""
    _matches(stage, "a/+/b", SPORT)


def slash_and_all(stage: Stage) -> None:
    """/# matches what begins with /"""
    _matches(stage, "/#", SPORT)


@only(V311)
def exact(stage: Stage) -> None:
    """a filter without wildcards is a name, in its case"""
    _matches(stage, "sport", SPORT)


@only(V311)
def dots_and_stars(stage: Stage) -> None:
    """dots, stars and dollars within a name mean nothing"""
    names = ("v1.2/heat", "v1/2/heat", "v1.2.heat", "*/heat", "a/$b", "v1.2/heat/x")
    _matches(stage, "v1.2/+", names)
    _matches(stage, "*/+", names)
    _matches(stage, "a/+", names)
    _matches(stage, "v1.2/#", names)


@only(V311)
def many_levels(stage: Stage) -> None:
    """a name of 100 levels"""
    name = "/".join(["l"] * 100)
    _matches(stage, name, [name, name + "/l"])
    _matches(stage, "l/#", [name])


@only(V311, V5)
def too_many_levels(stage: Stage) -> None:
    """a name and a filter of 300 levels"""
    name = "/".join(["l"] * 300)
    peer = stage.client("a")
    peer.publish(name, "m", 1, 1)
    stage.see("publish", peer.end())
    peer = stage.client("b")
    peer.subscribe((name, 0))
    stage.see("subscribe", peer.end())


@only(V311, V5)
def long_names(stage: Stage) -> None:
    """a name of 65,535 bytes"""
    name = "n" * 65_535
    reader = stage.subscriber("reader", ("n" * 65_535, 1), ("#", 0))
    reader.publish(name, "m", 1, 3)
    stage.see("came", len([each for each in reader.until(2) if name in each]))


def dollar(stage: Stage) -> None:
    """filters that begin with a wildcard do not match names that begin with $"""
    reader = stage.subscriber("reader", ("#", 0), ("+/broker/#", 0), ("$x/#", 0))
    writer = stage.client("writer")
    writer.publish("x", "m")
    writer.rest()
    stage.see("came", reader.rest())


@only(V311, V5)
def publish_to_dollar(stage: Stage) -> None:
    """a client publishes to a name that begins with $"""
    peer = stage.client("a")
    for number, name in enumerate(("$SYS/broker/version", "$SYS/x", "$share/g/t"), 1):
        peer.publish(name, "m", 1, number)
        stage.see(name, peer.rest())


@only(V311)
def publish_zero_to_dollar(stage: Stage) -> None:
    """a client publishes to $SYS with QoS 0, and nobody gets it"""
    reader = stage.subscriber("reader", ("$SYS/mine", 0))
    reader.publish("$SYS/mine", "m")
    stage.see("came", reader.rest())


def unicode_names(stage: Stage) -> None:
    """names of other alphabets"""
    _matches(stage, "größe/+/#", ("größe/ß", "größe/шина/температура", "grosse/ß"))
