"""The house checks itself: what docs/STYLE.md asks and a program can judge.

Every check of tests/tidy.py runs here on the tree, and on a small bad sample that it
must refuse and a good one that it must accept: a check that cannot fail is worse than
none. Exceptions are listed with their reason, and an exception nobody needs is an error.
"""

import gc
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests import tidy
from tests.tidy import Module, parse

ROOT = Path(__file__).parent.parent
TEXT_SUFFIXES = ("", ".md", ".py", ".sh", ".toml", ".xml", ".yml", ".yaml", ".txt")

# Where a door stands open, and why. Everything else gets the world handed in.
DOORS_OPEN = {
    "core/clock.py": ("time chance", "the real Clock and Entropy"),
    "core/compression.py": ("disk", "a mapping that is of no file, only memory"),
    "log/disk.py": ("disk threads", "the real Disk; a thread waits for its syncs"),
    "log/kernel_sync.py": ("disk", "a part of the real Disk: the kernel is asked for syncs"),
    "net/": ("network disk", "the real Net; a descriptor is read and written through os"),
    "cli/local_etcd.py": ("time disk threads network", "runs a program, and asks it how it is"),
    "cli/": ("time disk threads", "a program of its own, run by a person"),
    "cli/doctor_checks.py": ("network", "asks whether the ports are free"),
    "cli/top.py": ("network", "waits for keys with select"),
    "connect/": ("disk threads", "moves data between topics and the world of its options"),
    "prove/": ("time disk threads", "starts processes, kills them, reads what they wrote"),
    "log/object_store.py": ("disk", "the real ObjectStore; a directory is one"),
    "workers.py": (
        "threads",
        "threads hash, compress and copy, for the loop must not wait for that",
    ),
    "config.py": ("disk", "the configuration file, read once before the doors are built"),
    "spark/packing.py": ("disk", "an archive is a file of files"),
    "spark/class_archive.py": ("disk", "Java's file of classes is in a user's cache"),
    "spark/warm_up.py": ("disk", "a pipeline needs a directory for a minute"),
    "spark/session.py": ("disk threads network", "starts Java, reads what it says, ends it"),
    "spark/pipelines/batch_progress.py": ("time threads", "tells of a call while it lasts"),
    "spark/pipelines/running.py": ("time", "a pause before another try"),
    "spark/pipelines/": ("disk", "views and checkpoints are files; so is a file of pipelines"),
    "spark/java.py": ("disk threads", "looks for a Java, and asks it for its version"),
    "spark/reporting.py": ("threads", "tells of queries, which must not wait for that"),
    "spark/leasing.py": ("threads", "renews a lease while the driver waits for Spark"),
    "client/messaging/blocking.py": ("threads", "a loop for programs that have none"),
    "sim/": ("chance", "a simulation is chance out of a seed"),
    "lab/": ("chance", "so is a lab"),
    "testing.py": ("time disk threads network", "starts brokers from the outside"),
    "spark/formats/": ("disk", "files of schemas, read on the driver where a query is made"),
}

# Who may wait. `core` otherwise holds values, and `wire` is told what came in.
MAY_WAIT = (
    "core/coordinator.py",
    "core/ports.py",
    "cluster/etcd_coordinator.py",
    "cluster/joining.py",
    "cluster/gossip/node.py",
    "cluster/local_coordinator.py",
    "cluster/membership.py",
    "cluster/prefixed.py",
    "log/anew.py",
    "log/cleaner.py",
    "log/commit.py",
    "log/copier.py",
    "log/disk.py",
    "log/epochs.py",
    "log/files.py",
    "log/kernel_sync.py",
    "log/log.py",
    "log/truncation.py",
    "broker/",
    "gateway/",
    "net/",
    "client/",
    "clustering/",
    "linking/",
    "server.py",
    "workers.py",
    "housekeeping.py",
    "cli/",
    "connect/",
    "spark/",
    "testing.py",
    "transform/",
    "sim/",
)

# Where one seed must give one trace.
ORDERED = (
    "core/",
    "wire/",
    "log/",
    "broker/",
    "cluster/",
    "clustering/",
    "gateway/",
    "lab/",
    "linking/",
    "sim/",
)

Check = Callable[[Module], Iterator[str]]


@pytest.fixture(scope="module")  # Not read when tests are collected, nor kept: it is large.
def all_python() -> Iterator[list[Module]]:
    gc.disable()  # There is no garbage in more than a million nodes.
    try:
        modules = [
            module._replace(path=f"{tree}/{module.path}")
            for tree in ("src", "sim", "tests", "bench")
            for module in tidy.modules(ROOT / tree)
        ]
    finally:
        gc.freeze()
        gc.enable()
    yield modules
    tidy.nodes.cache_clear()


@pytest.fixture(scope="module")
def source(all_python: list[Module]) -> list[Module]:
    return inside("src/entrepot/", all_python)


@pytest.fixture(scope="module")
def simulated(source: list[Module], all_python: list[Module]) -> list[Module]:
    """The package, and the simulated world that it runs in."""
    return source + [module for module in all_python if module.path.startswith("sim/")]


def inside(prefix: str, modules: list[Module]) -> list[Module]:
    return [
        module._replace(path=module.path.removeprefix(prefix))
        for module in modules
        if module.path.startswith(prefix)
    ]


def findings(check: Check, modules: list[Module]) -> list[str]:
    return [finding for module in modules for finding in check(module)]


def closed_doors(module: Module) -> Iterator[str]:
    opened = " ".join(
        doors for prefix, (doors, _) in DOORS_OPEN.items() if module.path.startswith(prefix)
    )
    for door, finding in tidy.doors(module):
        if door not in opened:
            yield finding


def waits_elsewhere(module: Module) -> Iterator[str]:
    if not module.path.startswith(MAY_WAIT):
        yield from tidy.coroutines(module)


def unordered(module: Module) -> Iterator[str]:
    if module.path.startswith(ORDERED):
        yield from tidy.set_iteration(module)


def texts() -> Iterator[tuple[str, str]]:
    """Every text file of the project, by the places we know: no build output, no caches."""
    known = ("src/entrepot", "sim", "tests", "bench", "bin", "compat", "config", "docs", ".ci")
    paths = [path for place in known for path in (ROOT / place).rglob("*")]
    for path in sorted([*paths, *ROOT.glob("*")]):
        name = path.relative_to(ROOT).as_posix()
        is_ours = name != "LICENSE" and not re.search(r"/[._][^/]*(cache|hypothesis)", name)
        if path.is_file() and path.suffix in TEXT_SUFFIXES and is_ours:
            yield name, path.read_text("utf-8", errors="replace")


# --- the tree


@pytest.mark.parametrize("check", [tidy.long_functions, tidy.long_files])
def test_size(check: Check, all_python: list[Module]) -> None:
    assert findings(check, all_python) == []


@pytest.mark.parametrize(
    "check",
    [tidy.missing_theory, closed_doors, waits_elsewhere, tidy.module_state, unordered],
)
def test_habits(check: Check, simulated: list[Module]) -> None:
    assert findings(check, simulated) == []


def test_wire_is_sans_io(source: list[Module]) -> None:
    wire = [module for module in source if module.path.startswith("wire/")]
    assert wire, "the check looks at nothing"
    used = [finding for module in wire for _, finding in tidy.doors(module)]
    assert used + findings(tidy.coroutines, wire) == []


def test_few_parts_of_the_broker_are_given_all_of_it(source: list[Module]) -> None:
    """The others take a port (`broker/ports.py`), a value or a function: their types say what they
    use. An import for type checking only counts, too."""
    users = {
        module.path
        for module in source
        if module.path.startswith("broker/") and "entrepot.broker.broker" in tidy.imports(module)
    }
    assert users == {
        "broker/virtual_host/inventory.py",
        "broker/virtual_host/virtual_host.py",
        "broker/virtual_host/virtual_hosts.py",
    }


def test_the_broker_has_no_words_of_a_protocol(source: list[Module]) -> None:
    """What only AMQP or RabbitMQ calls so is known to their gateways."""
    words = re.compile(r"amqp|\bamq\.|[\"'`]x-[a-z]|\bB?CC\b|basic\.|rabbit", re.IGNORECASE)
    told = {"broker/router/ring.py": 2}  # Whose buckets its hash finds.
    for module in source:
        if module.path.startswith(("core/", "broker/")):
            found = words.findall(module.text)
            assert len(found) == told.get(module.path, 0), (module.path, found)


def test_no_open_door_that_nobody_uses(simulated: list[Module]) -> None:
    for prefix, (doors, reason) in DOORS_OPEN.items():
        used = {
            door
            for module in simulated
            if module.path.startswith(prefix)
            for door, _ in tidy.doors(module)
        }
        assert set(doors.split()) <= used, f"{prefix} ({reason}) uses only {used}"


def test_no_leftovers() -> None:
    assert [finding for path, text in texts() for finding in tidy.leftovers(path, text)] == []


def test_no_dead_modules(all_python: list[Module], source: list[Module]) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    started = [*project["scripts"].values(), *project["entry-points"]["pytest11"].values()]
    # Spark starts the last one.
    for_users = ["entrepot.once", "entrepot.spark.progress", "entrepot.spark.daemon"]
    # A cluster's parts, until a server can be told to join one: docs/decisions/0024.
    parts = ["etcd_coordinator", "joining", "local_coordinator", "membership", "placement"]
    ahead = [f"entrepot.cluster.{name}" for name in parts]
    alive = [name.partition(":")[0] for name in started] + for_users + ahead
    assert list(tidy.dead_modules("entrepot", source, alive)) == []
    tested = [name for module in inside("tests/", all_python) for name in tidy.imports(module)]
    assert list(tidy.dead_modules("sim", inside("sim/", all_python), tested)) == []


def test_compiled_modules(source: list[Module]) -> None:
    """They are there, and nothing in them or that inherits from them is what mypyc cannot do."""
    compiled = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["entrepot"]
    named = {
        f"{package}/{name}.py" for package, names in compiled["compiled"].items() for name in names
    }
    modules = [module for module in source if module.path in named]
    assert {module.path for module in modules} == named
    assert findings(tidy.steps_done_at_once, modules) == []
    assert findings(tidy.read_by_msgspec, modules) == []
    heirs = [
        f"{module.path}:{line}: inherits from {base}, which is compiled, and is not"
        for module in source
        if module.path not in named
        for line, base in tidy.bases(module)
        if f"{base.removeprefix('entrepot.').rpartition('.')[0].replace('.', '/')}.py" in named
    ]
    assert heirs == []


def test_import_contracts() -> None:
    ran = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache"],
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


# --- the checks

SAMPLES = {
    "a function too long": (
        tidy.long_functions,
        "def f():\n" + "    f()\n" * 60,
        "def f():\n" + "    f()\n" * 59,
    ),
    "a method too long": (
        tidy.long_functions,
        "try: ...\nexcept E:\n class C:\n  def f():\n" + "   f()\n" * 60,
        "try: ...\nexcept E:\n class C:\n  def f():\n" + "   f()\n" * 59,
    ),
    "a file too long": (tidy.long_files, "1\n" * 501, "1\n" * 500),
    "steps at once": (
        tidy.steps_done_at_once,
        "listed(f(x) for x in y)",
        "listed(map(f, y))",
    ),
    "a struct": (
        tidy.read_by_msgspec,
        "import msgspec\nclass C(msgspec.Struct, frozen=True): ...",
        "from x import Struct\nclass C(Struct[int]): ...",
    ),
    "no theory": (tidy.missing_theory, "X = 1", '"""What X is."""\nX = 1'),
    "the clock": (closed_doors, "import time as t\nt.monotonic()", "clock.monotonic()"),
    "the clock by name": (closed_doors, "from time import time", "from entrepot import time"),
    "today": (
        closed_doors,
        "from datetime import datetime\ndatetime.now()",
        "from datetime import datetime\ndatetime.fromtimestamp(0)",
    ),
    "chance": (closed_doors, "import random", "entropy.below(6)"),
    "an id": (closed_doors, "import uuid\nuuid.uuid4()", "import uuid\nuuid.UUID(int=1)"),
    "an id by name": (closed_doors, "from uuid import uuid4", "from uuid import UUID"),
    "a file": (closed_doors, "open('x')", "disk.open('x')"),
    "a descriptor": (closed_doors, "import os\nos.open('x')", "import os\nos.strerror(5)"),
    "a path": (closed_doors, "from pathlib import Path", "from posixpath import join"),
    "a socket": (closed_doors, "import socket", "net.listen()"),
    "a server": (closed_doors, "loop.create_server(f)", "loop.create_task(f)"),
    "a thread": (closed_doors, "loop.run_in_executor(None, f)", "loop.call_later(1, f)"),
    "waiting": (waits_elsewhere, "async def f(): ...", "def f(): ..."),
    "asyncio": (waits_elsewhere, "import asyncio", "import struct"),
    "a shared list": (tidy.module_state, "seen = []", "def f():\n    seen = []"),
    "a shared counter": (tidy.module_state, "ids = itertools.count()", "IDS = (1, 2)"),
    "a shared attribute": (
        tidy.module_state,
        "class C:\n    seen = {}",
        "class C:\n    __slots__ = ['a']\n    size = 3",
    ),
    "a global": (tidy.module_state, "def f():\n    global x\n    x = 1", "x = 1"),
    "a constant set": (tidy.module_state, "T = {}\nT['a'] = 1", "T = {}\nT['a']"),
    "a constant grown": (tidy.module_state, "T = [1]\nT.append(2)", "T = [1]\nT.index(1)"),
    "a set literal": (unordered, "for x in {1, 2}: ...", "for x in sorted({1, 2}): ..."),
    "a set call": (unordered, "[x for x in set(y)]", "[x for x in y]"),
    "a set attribute": (
        unordered,
        "class C:\n    def f(self):\n        self.a: set[int] = set()\n        list(self.a)",
        "class C:\n    def f(self):\n        self.a: dict[int, None] = {}\n        list(self.a)",
    ),
    "a difference": (unordered, "a = {1}\nfor x in a - b: ...", "a = 1\nfor x in [a - b]: ..."),
}


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_check_refuses_the_bad_and_accepts_the_good(sample: str) -> None:
    check, bad, good = SAMPLES[sample]
    assert findings(check, [parse("core/sample.py", bad)])
    assert findings(check, [parse("core/sample.py", good)]) == []


def test_an_open_door_is_open_where_listed_only() -> None:
    clock = "import time\nimport socket"
    assert len(findings(closed_doors, [parse("core/clock.py", clock)])) == 1
    assert len(findings(closed_doors, [parse("core/batch.py", clock)])) == 2


def test_leftovers_are_found() -> None:
    for bad in ("# TO" + "DO: later", "path = '/home" + "/ada/x'", "/roo" + "t/x"):
        assert list(tidy.leftovers("x.py", "fine\n" + bad)), bad
    assert list(tidy.leftovers("x.py", "a method\nthe root/leaf\nhomes")) == []


def test_dead_modules_are_found() -> None:
    tree = [
        parse("__init__.py", ""),
        parse("cli/__init__.py", "from importlib import import_module\nF = 'serve', Api.FETCH"),
        parse("cli/serve.py", "import entrepot.server"),
        parse("cli/fetch.py", ""),
        parse("cli/forgotten.py", ""),
        parse("server.py", "from entrepot.core import names"),
        parse("core/names.py", ""),
    ]
    found = list(tidy.dead_modules("entrepot", tree, []))
    assert found == ["cli/forgotten.py:1: nobody imports this module"]
    assert list(tidy.dead_modules("entrepot", tree, ["entrepot.cli.forgotten"])) == []
