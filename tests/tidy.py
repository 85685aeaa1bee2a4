"""The checks behind tests/test_house.py: the house rules that a program can judge.

Each check takes one module, or all of them, and yields findings as `path:line: what`.
They read syntax trees and nothing else, so they are quick and never run what they judge.
"""

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

FUNCTION_LINES_MAX = 60
FILE_LINES_MAX = 500
# Longer ones, and why.
LONG_FILES = {
    "entrepot/server.py": "assembles all parts, and alone knows them",
    "log/partition.py": "one partition: appending, and what retention or a leader removes of it",
    "virtual_host/inventory.py": "the queues of a virtual host: made, restored, changed, deleted",
    "gateway/kafka/fetch.py": "a fetch is read, waits and is answered, at once or in turns",
    "log/log.py": "all partitions of a node: opening, recovery, closing, housekeeping",
    "broker/consumer_group/coordinator.py": "what groups of both protocols need of the world",
    "broker/consumer_group/classic.py": "the classic protocol of a group is one machine",
    "broker/consumer_group/modern.py": "the modern protocol of a group is one machine",
    "broker/broker.py": "the verbs of all gateways, and the making of the parts behind them",
    "router/router.py": "the exchanges of a virtual host: how they change, and routes through them",
    "client/messaging/blocking.py": "each verb of the client that waits in a loop, once more",
    "broker/selector.py": "a grammar, and what each of its rules is compiled to",
    "clustering/node.py": "one place where roles, in-sync sets and moves follow the coordinator",
    "broker/transaction_coordinator.py": "a transaction's whole life, here and when it moves",
    "broker/queue/queue.py": "what a queue does, on every occasion, is one thought",
    "virtual_host/publisher.py": "where the messages of a run go, and when, is one thought",
    "broker/session/registry.py": "sessions: opened, taken over, resumed, expired, deleted",
    "broker/session/session.py": "what a session gets and has in flight is one thought",
    "wire/amqp/scan.py": "what one read holds is found in one pass: frames, runs, contents",
    "wire/mqtt/scan.py": "what one read holds is found in one pass: packets, runs and their rest",
}

# What belongs behind a door. A leading dot is a method, whatever it is called on.
DOORS = {
    "time": (
        "time",
        "datetime.date.today",
        "datetime.datetime.now",
        "datetime.datetime.today",
        "datetime.datetime.utcnow",
    ),
    "chance": ("random", "secrets", "os.getrandom", "os.urandom", "uuid.uuid1", "uuid.uuid4"),
    "disk": ("open", "io.open", "os", "pathlib", "shutil", "tempfile", "mmap", "fcntl", "glob"),
    "network": (
        "socket",
        "socketserver",
        "select",
        "selectors",
        "ssl",
        "asyncio.open_connection",
        "asyncio.start_server",
        ".create_connection",
        ".create_server",
    ),
    "threads": (
        "threading",
        "concurrent",
        "multiprocessing",
        "subprocess",
        "asyncio.to_thread",
        ".run_in_executor",
    ),
}
# Of these modules, but not of the world. A bare name does nothing.
HARMLESS = ("os", "os.PathLike", "os._exit", "os.fspath", "os.strerror")
MUTABLE_CALLS = (
    "list", "dict", "set", "bytearray", "deque", "defaultdict", "OrderedDict", "Counter",
    "count", "Lock", "Queue", "Event",
)  # fmt: skip
MUTATING_METHODS = (
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "popleft",
    "remove", "setdefault", "sort", "update",
)  # fmt: skip
LEFTOVERS = {
    "unfinished work": re.compile(r"\b(TO" r"DO|FIX" r"ME)\b"),
    "somebody's home": re.compile(r"/(home|Users)/\w|/root\b/|[A-Z]:\\Users\b"),
}


class Module(NamedTuple):
    path: str  # Relative to its tree, parts separated by `/`.
    text: str
    tree: ast.Module


def parse(path: str, text: str) -> Module:
    return Module(path, text, ast.parse(text, path))


@cache
def nodes(tree: ast.Module) -> tuple[ast.AST, ...]:
    """Return all nodes of a module. Kept until `nodes.cache_clear`: each check looks at them."""
    return tuple(ast.walk(tree))


def modules(root: Path) -> list[Module]:
    paths = sorted(root.rglob("*.py"))
    return [parse(p.relative_to(root).as_posix(), p.read_text("utf-8")) for p in paths]


# --- size and form


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All there are below it: much fewer than nodes, and no function is anywhere else."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


def long_functions(module: Module) -> Iterator[str]:
    for node in statements(module.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield f"{module.path}:{node.lineno}: {node.name} has {lines} lines"


def long_files(module: Module) -> Iterator[str]:
    lines = len(module.text.splitlines())
    if lines > FILE_LINES_MAX and not str(module.path).endswith(tuple(LONG_FILES)):
        yield f"{module.path}:{lines}: the file has {lines} lines"


def missing_theory(module: Module) -> Iterator[str]:
    if module.tree.body and ast.get_docstring(module.tree) is None:
        yield f"{module.path}:1: the module does not say what it is"


def leftovers(path: str, text: str) -> Iterator[str]:
    for number, line in enumerate(text.splitlines(), 1):
        for what, pattern in LEFTOVERS.items():
            if pattern.search(line):
                yield f"{path}:{number}: {what}: {line.strip()}"


def steps_done_at_once(module: Module) -> Iterator[str]:
    """To mypyc a generator expression is a list: all is done before the first step."""
    for node in nodes(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            lazy = [each for each in node.args if isinstance(each, ast.GeneratorExp)]
            if node.func.id == "listed" and lazy:
                yield f"{module.path}:{node.lineno}: a generator expression, in steps"


def bases(module: Module) -> Iterator[tuple[int, str]]:
    """Yield what its classes inherit from and it imports by name: the line, and the full name."""
    origin = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in nodes(module.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    for node in nodes(module.tree):
        for base in node.bases if isinstance(node, ast.ClassDef) else ():
            while isinstance(base, ast.Subscript):  # Of a generic class.
                base = base.value
            if isinstance(base, ast.Attribute):
                yield node.lineno, ast.unparse(base)
            elif isinstance(base, ast.Name) and base.id in origin:
                yield node.lineno, origin[base.id]


def read_by_msgspec(module: Module) -> Iterator[str]:
    """A compiled class has no annotations that msgspec could read."""
    for line, base in bases(module):
        if base == "msgspec.Struct":
            yield f"{module.path}:{line}: a class that msgspec reads"


# --- what a module uses of the world


def uses(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every imported thing the module names, in full (`os.path.join`), and its imports.

    What cannot be traced to an import is a method, yielded as `.name`.
    """
    origin = {"open": "open"}
    for node in nodes(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                origin[alias.asname or alias.name.split(".")[0]] = (
                    alias.name if alias.asname else alias.name.split(".")[0]
                )
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                origin[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                yield node.lineno, f"{node.module}.{alias.name}"
    for node in nodes(tree):
        if isinstance(node, ast.Name) and node.id in origin:
            yield node.lineno, origin[node.id]
        elif isinstance(node, ast.Attribute):
            yield node.lineno, dotted(node, origin) or f".{node.attr}"


def dotted(node: ast.expr, origin: dict[str, str]) -> str | None:
    if isinstance(node, ast.Attribute):
        base = dotted(node.value, origin)
        return base and f"{base}.{node.attr}"
    return origin.get(node.id) if isinstance(node, ast.Name) else None


def door_of(name: str) -> str | None:
    """The door a name belongs behind; of several the one that names it most closely."""
    if name in HARMLESS:
        return None
    found = [
        (len(prefix), door)
        for door, prefixes in DOORS.items()
        for prefix in prefixes
        if name == prefix or name.startswith(prefix + ".")
    ]
    return max(found)[1] if found else None


def doors(module: Module) -> Iterator[tuple[str, str]]:
    """Each use of the world: which door, and the finding."""
    for line, name in uses(module.tree):
        door = door_of(name)
        if door is not None:
            yield door, f"{module.path}:{line}: {name} belongs behind the door of {door}"


def imports(module: Module) -> dict[str, int]:
    """Imported modules in full, each with the line of its first import."""
    found: dict[str, int] = {}
    for node in nodes(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                found.setdefault(alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.setdefault(node.module, node.lineno)
            for alias in node.names:
                found.setdefault(f"{node.module}.{alias.name}", node.lineno)
    return found


def coroutines(module: Module) -> Iterator[str]:
    waiting = (ast.AsyncFunctionDef, ast.AsyncFor, ast.AsyncWith, ast.Await)
    for node in nodes(module.tree):
        if isinstance(node, waiting):
            yield f"{module.path}:{node.lineno}: this part does not wait"
    for name, line in imports(module).items():
        if name.split(".")[0] == "asyncio":
            yield f"{module.path}:{line}: this part does not know asyncio"


# --- state


def module_state(module: Module) -> Iterator[str]:
    """State shared by everyone: `global`, and mutable values outside of objects.

    A table in capitals is a constant, as long as the module does not change it.
    """
    constants: dict[str | None, int] = {}
    classes = [node for node in nodes(module.tree) if isinstance(node, ast.ClassDef)]
    for body in [module.tree.body, *(node.body for node in classes)]:
        for statement in body:
            for name in assigned_names(statement):
                if not is_mutable(getattr(statement, "value", None)) or name.startswith("__"):
                    continue
                if name.isupper():
                    constants[name] = statement.lineno
                else:
                    yield f"{module.path}:{statement.lineno}: {name} is shared and mutable"
    for node in nodes(module.tree):
        if isinstance(node, ast.Global):
            yield f"{module.path}:{node.lineno}: global {', '.join(node.names)}"
        elif (changed := changed_name(node)) in constants:
            line = getattr(node, "lineno", 0)
            yield f"{module.path}:{line}: the constant {changed} is changed"


def assigned_names(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Assign):
        return [target.id for target in node.targets if isinstance(target, ast.Name)]
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return [node.target.id]
    return []


def is_mutable(value: ast.expr | None) -> bool:
    displays = (ast.List, ast.Dict, ast.Set, ast.ListComp, ast.DictComp, ast.SetComp)
    return isinstance(value, displays) or (
        isinstance(value, ast.Call) and last_name(value.func) in MUTABLE_CALLS
    )


def last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def changed_name(node: ast.AST) -> str | None:
    """The plain name whose contents this statement or call changes."""
    if isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        return last_name(node.value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return last_name(node.func.value) if node.func.attr in MUTATING_METHODS else None
    return None


# --- order


def set_iteration(module: Module) -> Iterator[str]:
    """Loops over sets: their order differs from run to run, and a seed would not replay."""
    sets = set_names(module.tree)
    for node in nodes(module.tree):
        walked: list[ast.expr] = []
        if isinstance(node, ast.For | ast.AsyncFor | ast.comprehension):
            walked = [node.iter]
        elif isinstance(node, ast.Call) and last_name(node.func) in ("list", "tuple", "iter"):
            walked = node.args[:1]
        for iterable in walked:
            if is_set(iterable, sets):
                yield f"{module.path}:{iterable.lineno}: a set has no order: sort it, or use a dict"


def set_names(tree: ast.Module) -> dict[str, None]:
    """Variables and attributes that are annotated as sets or assigned one."""
    names: dict[str, None] = {}
    for node in nodes(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.AnnAssign) and is_set_type(node.annotation):
            targets = [node.target]
        elif isinstance(node, ast.Assign) and is_set(node.value, {}):
            targets = node.targets
        elif isinstance(node, ast.arg) and node.annotation and is_set_type(node.annotation):
            names[node.arg] = None
        for name in map(last_name, targets):
            if name is not None:
                names[name] = None
    return names


def is_set_type(annotation: ast.expr) -> bool:
    base = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return last_name(base) in ("set", "frozenset", "Set", "AbstractSet", "MutableSet")


def is_set(node: ast.expr, names: dict[str, None]) -> bool:
    if isinstance(node, ast.BinOp):
        return is_set(node.left, names) or is_set(node.right, names)
    if isinstance(node, ast.Call):
        return last_name(node.func) in ("set", "frozenset")
    if isinstance(node, ast.Name | ast.Attribute):
        return last_name(node) in names
    return isinstance(node, ast.Set | ast.SetComp)


# --- the whole


def dead_modules(root: str, everything: Iterable[Module], alive: Iterable[str]) -> Iterator[str]:
    """Modules of the package `root` that nobody imports and nothing starts."""
    named: dict[str, None] = dict.fromkeys(alive)
    paths: dict[str, str] = {}
    for module in everything:
        *package, name = (root, *module.path.removesuffix(".py").split("/"))
        if name not in ("__init__", "__main__"):
            paths[".".join((*package, name))] = module.path
        found = imports(module)
        named.update(dict.fromkeys(found))
        if "importlib.import_module" in found:
            named.update((".".join((*package, sibling)), None) for sibling in words(module))
    for name, path in paths.items():
        if name not in named:
            yield f"{path}:1: nobody imports this module"


def words(module: Module) -> Iterator[str]:
    """What a module that imports siblings when needed may call them: texts and members."""
    for node in nodes(module.tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value
        elif isinstance(node, ast.Attribute):
            yield node.attr.lower()
