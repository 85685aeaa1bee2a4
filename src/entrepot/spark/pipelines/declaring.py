"""What a pipeline says of itself: what it reads, what it writes, and how.

All that can be wrong with it alone is refused here, when its module is imported: the
sooner, the nearer to the line that is to blame. What depends on a broker or on files is
found out by the runner.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from types import ModuleType
from typing import Any

from entrepot.core.errors import InvalidName
from entrepot.core.names import check_topic_name
from entrepot.spark.errors import PipelineError

MODES = ("append", "update", "complete")
MERGES = ("sum", "min", "max")  # Of two parts, the whole: what Lambda's serving view needs.
DEAD_LETTERS = "<name>.dead-letters"


@dataclass(frozen=True, slots=True)
class Topic:
    """Records of a topic, or of all whose names match; and where a view becomes records.

    With a schema a value is JSON and its fields are columns. What is not such JSON goes to
    `dead_letters`, or is dropped and counted if that is None. `key` names, for an output,
    the column that becomes the key.
    """

    name: str
    schema: str | None = None
    dead_letters: str | None = DEAD_LETTERS
    pattern: bool = False
    key: str | None = None

    def __post_init__(self) -> None:
        if self.pattern:
            self._check_pattern()
        else:
            _check_name(self.name)
        if self.dead_letter_topic is not None:
            _check_name(self.dead_letter_topic)

    def _check_pattern(self) -> None:
        try:
            pattern = re.compile(self.name)
        except re.error as error:
            message = f"topic pattern {self.name!r} is not a regular expression: {error}"
            raise PipelineError(message) from None
        dead = self.dead_letter_topic
        if dead is not None and (self.dead_letters == DEAD_LETTERS or pattern.fullmatch(dead)):
            raise PipelineError(
                f"topic pattern {self.name!r}: dead_letters must name one topic that the "
                "pattern does not match, or be None"
            )

    def __str__(self) -> str:
        return f"topics {self.name}" if self.pattern else f"topic {self.name}"

    @property
    def dead_letter_topic(self) -> str | None:
        """Return the topic for values that do not parse; None for raw records: none is parsed."""
        if self.schema is None or self.dead_letters is None:
            return None
        return self.dead_letters.replace("<name>", self.name)


@dataclass(frozen=True, slots=True)
class Table:
    """What another pipeline writes: row by row as it grows, or static, as it stands now."""

    name: str
    static: bool = False

    def __str__(self) -> str:
        return f"table {self.name}, as it stands" if self.static else f"table {self.name}"


@dataclass(frozen=True, slots=True)
class Parquet:
    """Files that are added to."""

    name: str
    partition_by: Sequence[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "partition_by", _names(self.partition_by))

    def __str__(self) -> str:
        return f"Parquet {self.name}"


@dataclass(frozen=True, slots=True)
class Delta:
    """A Delta table: added to, or with keys, one row for each key, the newest.

    When a key is there twice in a micro-batch, the row with the largest `order` counts;
    without it the batch is refused, as nothing says which is newer.
    """

    name: str
    keys: Sequence[str] = ()
    order: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "keys", _names(self.keys))

    def __str__(self) -> str:
        return f"Delta {self.name} by {', '.join(self.keys)}" if self.keys else f"Delta {self.name}"


@dataclass(frozen=True, slots=True)
class Queue:
    """Messages of a queue, each for one consumer; and where rows become messages.

    What is read is settled when its batch is done, so there is no second time: a pipeline that
    reads or writes a queue is run live only.
    """

    name: str

    def __post_init__(self) -> None:
        _check_name(self.name)

    def __str__(self) -> str:
        return f"queue {self.name}"


Input = Topic | Table | Queue
Output = Topic | Parquet | Delta | Queue


@dataclass(frozen=True)
class Pipeline:
    """A function and what is said of it. Called, it is the function."""

    name: str
    function: Callable[..., Any]
    reads: tuple[Input, ...]
    writes: Output
    mode: str
    merge: tuple[tuple[str, str], ...] = ()

    def __call__(self, *frames: Any) -> Any:
        return self.function(*frames)

    @property
    def is_lambda(self) -> bool:
        return bool(self.merge)

    @property
    def has_table(self) -> bool:
        """Return whether it writes a view, which has versions."""
        return isinstance(self.writes, Parquet | Delta)

    @property
    def queues(self) -> list[Queue]:
        """Return the queues that it reads."""
        return [each for each in self.reads if isinstance(each, Queue)]

    @property
    def topics(self) -> list[Topic]:
        return [each for each in self.reads if isinstance(each, Topic)]

    @property
    def tables(self) -> list[Table]:
        return [each for each in self.reads if isinstance(each, Table)]


def pipeline(
    *,
    reads: Input | Sequence[Input] | Mapping[str, Input],
    writes: Output | None = None,
    mode: str | None = None,
    merge: Mapping[str, str] | None = None,
) -> Callable[[Callable[..., Any]], Pipeline]:
    """Make a function a pipeline.

    `reads` are its parameters, in their order or by name. `mode` is Spark's output mode.
    `merge` makes it a Lambda pipeline: how each column of the batch view and of the speed
    view makes one; the other columns are the key.
    """

    def declare(function: Callable[..., Any]) -> Pipeline:
        name = function.__name__
        made = Pipeline(
            name=name,
            function=function,
            reads=_reads(function, reads),
            writes=writes or (Delta(name) if merge else Parquet(name)),
            mode=mode if mode is not None else "update" if merge else "append",
            merge=tuple((merge or {}).items()),
        )
        problem = _problem(made)
        if problem is not None:
            raise PipelineError(f"pipeline {name}: {problem}")
        return made

    return declare


def _reads(
    function: Callable[..., Any], reads: Input | Sequence[Input] | Mapping[str, Input]
) -> tuple[Input, ...]:
    parameters = list(inspect.signature(function).parameters)
    about = f"pipeline {function.__name__}"
    if isinstance(reads, Mapping):
        if sorted(reads) != sorted(parameters):
            said, wanted = ", ".join(reads), ", ".join(parameters)
            raise PipelineError(f"{about}: reads names {said}; the parameters are {wanted}")
        return tuple(reads[name] for name in parameters)
    inputs = (reads,) if isinstance(reads, Topic | Table | Queue) else tuple(reads)
    if len(inputs) != len(parameters):
        raise PipelineError(
            f"{about}: it reads {len(inputs)} inputs and has {len(parameters)} parameters"
        )
    return inputs


def _problem(made: Pipeline) -> str | None:
    """Return what is wrong with a pipeline; None if nothing is."""
    writes, mode = made.writes, made.mode
    if made.merge and (problem := _lambda_problem(made)) is not None:
        return problem
    if not made.reads:
        return "it reads nothing: reads=Topic(…) or Table(…)"
    if mode not in MODES:
        return f"mode {mode!r} is not one of {', '.join(MODES)}"
    if isinstance(writes, Topic) and writes.pattern:
        return "writes: one topic, not a pattern"
    if isinstance(writes, Topic | Queue) and mode != "append":
        kind = "topic" if isinstance(writes, Topic) else "queue"
        return f"mode {mode} changes rows, and a {kind} is only added to; write Delta"
    if isinstance(writes, Parquet) and mode != "append":
        return f"mode {mode} changes rows, and Parquet is only added to; write Delta with keys"
    if isinstance(writes, Delta) and mode == "update" and not writes.keys and not made.merge:
        return "mode update needs keys: Delta(…, keys=[…]) says which row a new one replaces"
    if all(isinstance(each, Table) and each.static for each in made.reads):
        return "all it reads is static: nothing would ever come in"
    return None


def _lambda_problem(made: Pipeline) -> str | None:
    for column, function in made.merge:
        if function not in MERGES:
            known = ", ".join(MERGES)
            return f"merge: {column} by {function!r}; only {known} of two parts give the whole"
    if not isinstance(made.writes, Delta) or made.mode != "update":
        return "merge needs writes=Delta(…) and mode update: the speed view changes its rows"
    if twice := [name for name in made.writes.keys if name in dict(made.merge)]:
        return f"merge: {twice[0]} is a key, and keys are not merged"
    if made.queues or not all(each.static for each in made.tables):
        return "merge needs topics and static tables: where a batch ended is an offset"
    return None


def _names(said: str | Iterable[str]) -> tuple[str, ...]:
    return (said,) if isinstance(said, str) else tuple(said)


def _check_name(name: str) -> None:
    try:
        check_topic_name(name)
    except InvalidName as error:
        raise PipelineError(str(error)) from None


# --- several


def collect(source: ModuleType | Iterable[Pipeline]) -> list[Pipeline]:
    """Return the pipelines of a module, each after those whose tables it reads."""
    found: Iterable[Any] = source if not isinstance(source, ModuleType) else vars(source).values()
    made = list({id(each): each for each in found if isinstance(each, Pipeline)}.values())
    if not made:
        raise PipelineError("there is no pipeline: @pipeline(reads=…) makes a function one")
    for what, names in (
        ("pipelines", [each.name for each in made]),
        ("tables", [each.writes.name for each in made if each.has_table]),
    ):
        if twice := [name for name in names if names.count(name) > 1]:
            raise PipelineError(f"two {what} are named {twice[0]}")
    return _in_order(made)


def _in_order(made: list[Pipeline]) -> list[Pipeline]:
    ordered: list[Pipeline] = []
    waiting = list(made)
    while waiting:
        pending = [each.writes.name for each in waiting if each.has_table]
        ready = [e for e in waiting if not any(table.name in pending for table in e.tables)]
        if not ready:
            names = ", ".join(each.name for each in waiting)
            raise PipelineError(f"pipelines {names} read each other's tables in a circle")
        ordered += ready
        waiting = [each for each in waiting if each not in ready]
    return ordered


def choose(made: list[Pipeline], names: Iterable[str]) -> list[Pipeline]:
    """Return the pipelines of these names; all if no name is given."""
    known = {each.name: each for each in made}
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"is it {near[0]} that is meant?" if near else f"there are {', '.join(known)}"
            raise PipelineError(f"there is no pipeline {name}; {hint}")
    return [each for each in made if each.name in tuple(names)] if names else made


def with_readers(chosen: list[Pipeline], made: list[Pipeline]) -> list[Pipeline]:
    """Add the pipelines that follow what the chosen ones write: what they read is replaced."""
    found: list[Pipeline] = []
    for each in made:
        replaced = [one.writes.name for one in found if one.has_table]
        follows = [table.name for table in each.tables if not table.static]
        if each in chosen or any(name in replaced for name in follows):
            found.append(each)
    return found
