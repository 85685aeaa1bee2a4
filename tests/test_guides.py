"""The guides run: each page from its first block to its last, as a reader would run it.

What a page shows must be what comes. How a page is read as a program is in tests/guide.py.
"""

import random
import socket
from contextlib import suppress
from pathlib import Path

import pytest

from tests.guide import PORTS, ROOT, TLS_PORT, GuideError, Page, blocks_of, matches

SLOW = tuple(
    f"docs/guides/{name}.md"
    for name in (
        *("connect", "event-routing", "exactly-once", "gossip", "mqtt", "multicast"),
        *("python-client", "queues", "security", "spaces", "testing", "transformation"),
    )
)
ON_SPARK = ("docs/guides/pipelines.md", "docs/guides/spark.md", "docs/guides/streams.md")
PAGES = [
    "README.md",
    "docs/start.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/guides/*.md")),
]
# How many blocks of a page nobody can run here. Each says why, in a comment before it.
NOT_RUN = {
    "README.md": 1,
    "docs/start.md": 2,
    "docs/guides/bridges.md": 1,
    "docs/guides/cluster.md": 7,
    "docs/guides/clusters.md": 5,
    "docs/guides/compiled.md": 3,
    "docs/guides/connect.md": 2,
    "docs/guides/console.md": 2,
    "docs/guides/event-routing.md": 2,
    "docs/guides/exactly-once.md": 2,
    "docs/guides/gossip.md": 1,
    "docs/guides/links.md": 1,
    "docs/guides/operating.md": 5,
    "docs/guides/multicast.md": 1,
    "docs/guides/pipelines.md": 2,
    "docs/guides/spark.md": 4,
}


def with_marks(page: str) -> object:
    """Return the parameter for a page. On Spark it takes minutes, on a busy machine many."""
    marks = [pytest.mark.slow] if page in SLOW + ON_SPARK else []
    if page in ON_SPARK:
        marks.append(pytest.mark.timeout(1_800))
    return pytest.param(page, marks=marks)


def free_ports() -> dict[str, int]:
    """Return a free port for each that a broker has by default, and for TLS.

    They are below those that systems give to whoever asks for any: it stays free until it is used.
    """
    found: dict[str, int] = {}
    for default in (*PORTS, TLS_PORT):
        while default not in found:
            port = random.randrange(10_000, 32_000)
            with socket.socket() as probe, suppress(OSError):
                probe.bind(("127.0.0.1", port))
                found[default] = port
    return found


@pytest.mark.parametrize("page", [with_marks(page) for page in PAGES])
def test_page_runs(page: str, tmp_path: Path) -> None:
    with Page(ROOT / page, tmp_path, free_ports()) as running:
        running.run()


def test_few_blocks_are_not_run() -> None:
    found: dict[str, int] = {}
    for page in PAGES:
        for block in blocks_of((ROOT / page).read_text("utf-8")):
            if block.note == "not run":
                print(f"{page}:{block.line}: {block.said}")
                found[page] = found.get(page, 0) + 1
    assert found == NOT_RUN


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("```sh\nfalse\n```\n", "page.md:2: ended with 1"),
        ("```sh\necho one\n```\n\n```\ntwo\n```\n", "the page shows:\ntwo"),
        ("```\n$ echo one\none\n$ echo one\ntwo\n```\n", "the page shows:\ntwo"),
        ("```python\nx = 1\n```\n\n```python\nprint(y)\n```\n", "page.md:6: ended with 1"),
        ("```python\nprint(1)\n```\n\n```\n2\n```\n", "but this was printed:\n1"),
        ("```toml\na = 1\n```\n", "for which file"),
        ("<!-- excerpt: README.md -->\n```python\nno such line\n```\n", "does not stand in"),
        ("text\n\n    entrepot status\n", "not fenced"),
        ("- in a list\n  ```sh\n  true\n  ```\n", "not fenced"),
        ("<!-- flie: a.toml -->\n```toml\na = 1\n```\n", "nobody knows what 'flie' means"),
        ("```\nentrepot status\n```\n", "the output of no block"),
        ("```sh\nfalse | true\n```\n", "page.md:2: ended with 1"),
        ("```sh\nsleep 9  # Ctrl-C ends it.\n```\n\n```\nnothing\n```\n\n", "but this came"),
    ],
)
def test_a_page_that_is_wrong_is_found(
    text: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What sleeps is waited for to the end, whatever that is.
    monkeypatch.setattr("tests.guide.BLOCK_S_MAX", 0.3 if "sleep" in text else 3.0)
    page = tmp_path / "page.md"
    page.write_text(f"{text}\n<!-- not run: it only has to be named -->\n```sh\nmake run\n```\n")
    running = Page(page, tmp_path / "run", free_ports())
    with pytest.raises(GuideError) as caught, running:
        running.run()
    assert complaint in str(caught.value)


def test_what_is_shown_may_leave_something_out() -> None:
    assert matches("a …\nb\n", "a whole line  \nb\n")
    assert matches("first\n…\nlast\n", "first\nthis\nand that\nlast\n")
    assert matches("due 1794812734929", "due 1812345678901")
    assert not matches("a …\nb\n", "a\nmore\nb\n")
    assert not matches("due 1794812734929", "due soon")
