"""What went wrong, in one line: Spark tells it in hundreds.

An error of ours, raised in a process that Spark started, comes back as text within text,
with Java's and Python's traces around it. The last trace of Python ends with what was
meant for people; where there is none, it is what follows Spark's last name of an error.
"""

import re
import traceback
from collections.abc import Iterable
from pathlib import Path

import entrepot

_TRACE = "Traceback (most recent call last)"
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*([A-Za-z_]\w*)(?:: (.*))?$")
_NAME = re.compile(r"\[[A-Z][A-Z0-9_.]{4,}\] ")
_QUERY = re.compile(r"^Query \[id = .*?\] terminated with exception: ")
_STATE = re.compile(r" ?SQLSTATE: \w+;?.*$")
_DISK_FULL = ("No space left on device", "Disk quota exceeded", "os error 28")
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in ')
LENGTH_MAX = 500

# Whoever wrote a pipeline looks for a line of their own: not of Python, of Spark, or of ours.
_OURS = str(Path(entrepot.__file__).parent)
_OTHERS = ("/site-packages/", "/dist-packages/", "/lib/python", ".zip/", "<")


def reason_of(error: BaseException) -> str:
    text = str(error)
    if any(words in text for words in _DISK_FULL):
        return "no space is left on the device where it keeps its checkpoint and its view"
    found = _raised(text) or _named(text) or text.strip().partition("\n")[0]
    return found[:LENGTH_MAX] or type(error).__name__


def _raised(text: str) -> str | None:
    """Return what the last trace of Python ends with, and the user's line on the way there."""
    _, trace, after = text.rpartition(_TRACE)
    if not trace:
        return None
    places = []
    for line in after.splitlines()[1:]:
        if (frame := _FRAME.match(line)) is not None:
            places.append((frame[1], int(frame[2])))
        found = None if line.startswith(" ") else _RAISED.match(line.strip())
        if found is not None:
            name, words = found.groups()
            place = _place(places)
            if place:
                return f"{name}: {words}{place}" if words else f"{name}{place}"
            return _named(words) or words if words else str(name)
    return None


def _place(places: Iterable[tuple[str, int | None]]) -> str:
    """Return the last of these lines that is in a file of the pipeline's author."""
    mine = [
        f" ({path}, line {line})"
        for path, line in places
        if not path.startswith(_OURS) and not any(part in path for part in _OTHERS)
    ]
    return mine[-1] if mine else ""


def blame(error: BaseException) -> str:
    """Return what a function raised on the driver, with the line that is to blame."""
    frames = traceback.extract_tb(error.__traceback__)
    place = _place((frame.filename, frame.lineno) for frame in frames)
    return f"{type(error).__name__}: {error}{place}"[:LENGTH_MAX]


def _named(text: str) -> str | None:
    """Return what Spark says after the name that it has for an error: `[A_NAME] words`."""
    *_, words = _NAME.split(text)
    if words == text:
        return None
    return _QUERY.sub("", _STATE.sub("", words.partition("\n")[0])).strip()
