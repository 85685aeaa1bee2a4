"""XML and documents. What has a document type is refused: so no entity is ever expanded.

An element without attributes and children is its text; else it is an object, in which an attribute
is `@name`, a child its own name, several children of one name a list, and text beside them `#text`.
"""

from __future__ import annotations

from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape, quoteattr

from entrepot.transform.refusal import DEPTH_MAX, NODES_MAX, Refused

_TEXT = "#text"


def read_xml(data: bytes) -> tuple[str, Any]:
    """Return the name of the outermost element, and what is in it. Raises Refused."""
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartDoctypeDeclHandler = reader.doctype
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise Refused(f"not XML: {error}") from None
    except (LookupError, ValueError) as error:  # An encoding that nobody knows; our own refusal.
        raise Refused(str(error)) from None
    return reader.name, reader.found


class _Reader:
    def __init__(self) -> None:
        self.name = ""
        self.found: Any = None
        self._open: list[tuple[str, dict[str, Any], list[str]]] = []
        self._count = 0

    def doctype(self, *_: object) -> None:
        raise Refused("a document type is not read")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        self._count += 1 + len(attributes)
        if len(self._open) >= DEPTH_MAX:
            raise Refused(f"nested deeper than {DEPTH_MAX}")
        if self._count > NODES_MAX:
            raise Refused(f"more than {NODES_MAX} values")
        self._open.append((name, {f"@{key}": text for key, text in attributes.items()}, []))

    def text(self, text: str) -> None:
        self._open[-1][2].append(text)

    def end(self, _: str) -> None:
        name, inside, texts = self._open.pop()
        text = "".join(texts)
        value: Any = text
        if inside:
            value = inside
            if text.strip():
                inside[_TEXT] = text.strip()
        if not self._open:
            self.name, self.found = name, value
            return
        above = self._open[-1][1]
        if name not in above:
            above[name] = value
        elif isinstance(above[name], list):
            above[name].append(value)
        else:
            above[name] = [above[name], value]


def write_xml(root: str, document: dict[str, Any]) -> str:
    """Return an element with all of a document in it. Raises Refused."""
    parts: list[str] = []
    _write(root, document, parts)
    return "".join(parts)


def _write(name: str, value: Any, parts: list[str]) -> None:
    from entrepot.transform.kinds import text_of

    _check_name(name)
    if not isinstance(value, dict):
        parts.append(f"<{name}>{_escaped(text_of(value))}</{name}>")
        return
    parts.append(f"<{name}")
    for key, each in value.items():
        if key.startswith("@"):
            _check_name(key[1:])
            parts.append(f" {key[1:]}={quoteattr(_checked(text_of(each)))}")
    parts.append(">")
    for key, each in value.items():
        if key == _TEXT:
            parts.append(_escaped(text_of(each)))
        elif not key.startswith("@"):
            for one in each if isinstance(each, list) else [each]:
                if isinstance(one, list):
                    raise Refused("XML has no lists of lists")
                _write(key, one, parts)
    parts.append(f"</{name}>")


def _check_name(name: str) -> None:
    plain = name.replace("-", "_").replace(".", "_").replace(":", "_")
    if not plain.isidentifier() or name[0] in "-.:":
        raise Refused(f"{name!r} is no name of an element")


def _escaped(text: str) -> str:
    return escape(_checked(text))


def _checked(text: str) -> str:
    if any(character < " " and character not in "\t\n\r" for character in text):
        raise Refused("XML has no word for control characters")
    return text
