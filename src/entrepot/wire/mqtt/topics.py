"""Topic names and topic filters: which ones are legal (section 4.7), and shared ones (4.8)."""

from typing import NamedTuple

from entrepot.wire.mqtt.limits import TEXT_BYTES_MAX, TOPIC_LEVELS_MAX
from entrepot.wire.mqtt.reasons import MqttError, Reason, malformed

SHARED = "$share"


class Shared(NamedTuple):
    """A filter that is shared by the sessions of a group."""

    group: str
    filter: str


def read_text(data: bytes) -> str:
    """Return the text. Raises MqttError if it is not UTF-8, or has a null or a surrogate."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise malformed("a text that is not UTF-8") from None
    if "\0" in text:
        raise malformed("a text with U+0000")
    return text


def check_name(name: str) -> None:
    """Raise MqttError unless this is a topic name."""
    if not name or "+" in name or "#" in name or name.count("/") >= TOPIC_LEVELS_MAX:
        raise MqttError(Reason.TOPIC_NAME_INVALID, _wrong("a topic name", name))


def check_filter(text: str) -> None:
    """Raise MqttError unless this is a topic filter, shared or not."""
    shared = shared_filter(text)
    filter = text if shared is None else shared.filter
    if not _is_filter(filter):
        raise MqttError(Reason.TOPIC_FILTER_INVALID, _wrong("a topic filter", text))


def _is_filter(text: str) -> bool:
    if not text or text.count("/") >= TOPIC_LEVELS_MAX or len(text) > TEXT_BYTES_MAX:
        return False
    if "+" not in text and "#" not in text:
        return True
    *levels, last = text.split("/")
    if any("#" in level or ("+" in level and level != "+") for level in levels):
        return False
    return last in ("+", "#") or ("+" not in last and "#" not in last)


def shared_filter(text: str) -> Shared | None:
    """Return group and filter of a shared subscription; None for another one. Raises MqttError."""
    if not text.startswith(SHARED) or text[len(SHARED) : len(SHARED) + 1] not in ("", "/"):
        return None
    _, _, rest = text.partition("/")
    group, _, filter = rest.partition("/")
    if not group or "+" in group or "#" in group or not filter:
        raise MqttError(Reason.TOPIC_FILTER_INVALID, _wrong("a shared topic filter", text))
    return Shared(group, filter)


def _wrong(what: str, text: str) -> str:
    return f"not {what}: {text[:100]!r}"
