"""The documentation names what there is: links lead somewhere, tables miss nothing."""

import inspect
import re
from pathlib import Path

import pytest

from entrepot import config
from entrepot.broker.topic_config import SETTINGS
from entrepot.core import limits
from entrepot.gateway.kafka.apis import SERVED
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp10 import limits as amqp10_limits
from entrepot.wire.gossip import limits as gossip_limits
from entrepot.wire.http import limits as http_limits
from entrepot.wire.mqtt import limits as mqtt_limits
from entrepot.wire.sqs import limits as sqs_limits
from entrepot.wire.stomp import limits as stomp_limits

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def broken_links(page: Path) -> list[str]:
    """Links of a page to files that are not there; addresses elsewhere are not followed."""
    text = re.sub(r"```.*?```", "", page.read_text("utf-8"), flags=re.DOTALL)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    local = [target for target in targets if target and "://" not in target]
    return [target for target in local if not (page.parent / target).exists()]


def missing(names: list[str], page: str) -> list[str]:
    text = (DOCS / page).read_text("utf-8")
    return [name for name in names if f"`{name}`" not in text]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


def test_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("[a](page.md#top) [b](gone.md) [c](https://example.org)\n```\n[d](x)\n```\n")
    assert broken_links(page) == ["gone.md"]


def test_every_key_is_documented() -> None:
    assert missing(config.legal_keys(), "reference/configuration.md") == []


def test_every_topic_setting_is_documented() -> None:
    assert missing(list(SETTINGS), "reference/configuration.md") == []


_LIMITS = {
    "": limits,
    "AMQP_": amqp_limits,
    "AMQP10_": amqp10_limits,
    "GOSSIP_": gossip_limits,
    "HTTP_": http_limits,
    "MQTT_": mqtt_limits,
    "SQS_": sqs_limits,
    "STOMP_": stomp_limits,
}


def test_every_limit_is_documented() -> None:
    text = (DOCS / "reference" / "limits.md").read_text("utf-8")
    listed = dict(re.findall(r"^\| `([A-Z_0-9]+)` \| ([^|]+) \|", text, flags=re.MULTILINE))
    units = {"KiB": limits.KIB, "MiB": limits.MIB, "GiB": limits.GIB}
    expected = {}
    for prefix, module in _LIMITS.items():
        defined = re.findall(r"^([A-Z_]+) =", inspect.getsource(module), flags=re.MULTILINE)
        expected |= {prefix + name: getattr(module, name) for name in defined}
    for unit in ("KIB", "MIB", "GIB"):
        del expected[unit]
    assert {name: number(value, units) for name, value in listed.items()} == expected


def number(text: str, units: dict[str, int]) -> int:
    """`1 MiB + 12` and the like."""
    match = re.fullmatch(r"([\d,]+)(?: (\w+))?(?: ([+\N{MINUS SIGN}]) (\d+))?", text)
    assert match, text
    size, unit, sign, more = match.groups()
    rest = int(more or 0)
    return int(size.replace(",", "")) * units.get(unit, 1) + (rest if sign == "+" else -rest)


def test_the_kafka_page_lists_what_is_served() -> None:
    text = (DOCS / "protocols" / "kafka.md").read_text("utf-8")
    listed = re.findall(r"^\| (\w+) \| (\d+)(?:\N{EN DASH}(\d+))? \|$", text, flags=re.MULTILINE)
    expected = {
        "".join(word.capitalize() for word in api.name.split("_")): (
            api.version_first,
            api.version_last,
        )
        for api in (entry.api for entry in SERVED)
    }
    assert {name: (int(low), int(high or low)) for name, low, high in listed} == expected
