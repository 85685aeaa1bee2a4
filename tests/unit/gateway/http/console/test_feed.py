"""The feed keeps the newest lines of the log, and numbers them."""

import logging

from entrepot.gateway.http.console.feed import Feed
from entrepot.wire.http import limits as http_limits


def test_lines_are_numbered_and_told_once() -> None:
    feed = Feed()
    log = logging.Logger("entrepot.queues")
    log.addHandler(feed)
    log.debug("not this")
    log.info("queue %s is made", "a")
    log.warning("queue %s", "b\udcff")
    log.critical("x" * 10_000)
    lines = feed.after(0)
    assert [(line.number, line.level, line.part) for line in lines] == [
        (1, "info", "queues"),
        (2, "warning", "queues"),
        (3, "error", "queues"),
    ]
    assert [lines[0].text, lines[1].text] == ["queue a is made", "queue b\ufffd"]
    assert len(lines[2].text) == http_limits.WATCH_TEXT_CHARACTERS_MAX
    assert [line.number for line in feed.after(2)] == [3]
    assert feed.after(3) == []


def test_only_the_newest_are_kept() -> None:
    feed = Feed()
    for number in range(http_limits.WATCH_TEXTS_MAX + 5):
        feed.add(number, "info", "x", "")
    lines = feed.after(0)
    assert (len(lines), lines[0].number) == (http_limits.WATCH_TEXTS_MAX, 6)
