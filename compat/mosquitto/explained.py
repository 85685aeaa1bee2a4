"""Where Mosquitto's answer is not the one we want: `explained.txt`, and FINDINGS.md says why.

One difference is three lines: the case and what was observed, what Mosquitto shows, and what is
right. It counts only if both are exactly that, so an explanation that is out of date fails.
"""

from pathlib import Path

Explained = dict[str, dict[str, tuple[str, str]]]


def _load() -> Explained:
    found: Explained = {}
    lines = Path(__file__).with_name("explained.txt").read_text().splitlines()
    lines = [line for line in lines if line and not line.startswith("#")]
    for head, theirs, ours in zip(lines[::3], lines[1::3], lines[2::3], strict=True):
        name, _, what = head.partition(" | ")
        found.setdefault(name, {})[what] = theirs.strip(), ours.strip()
    return found


EXPLAINED = _load()
