"""Do two AMQP brokers behave alike? Every case is run on both, and what is seen is compared.

    python compat/rabbitmq/behaviour.py HOST:PORT HOST:PORT [--case WORDS] [--show] [--list]

The first broker is the one that is right. One line per case: PASS, or the first thing that
was different. A case that raises something, on either of them, has failed: it saw nothing.
`--show` prints everything that the first one showed.
"""

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from types import ModuleType

import cases_bad_input
import cases_connection
import cases_consuming
import cases_dead_letters
import cases_declaring
import cases_limits
import cases_publishing
import cases_time
import cases_types
from stage import Stage

MODULES = (
    cases_time,
    cases_limits,
    cases_dead_letters,
    cases_declaring,
    cases_publishing,
    cases_consuming,
    cases_connection,
    cases_types,
    cases_bad_input,
)
CASE_S_MAX = 60

Case = Callable[[Stage], None]
Seen = list[tuple[str, object]]


class TooLong(Exception):
    pass


def cases() -> Iterator[tuple[str, Case]]:
    for module in MODULES:
        for name, value in vars(module).items():
            if _is_case(module, name, value):
                yield (value.__doc__ or name).strip().splitlines()[0], value


def _is_case(module: ModuleType, name: str, value: object) -> bool:
    is_ours = getattr(value, "__module__", None) == module.__name__
    return callable(value) and is_ours and not name.startswith("_") and not isinstance(value, type)


def play(case: Case, address: str, prefix: str) -> tuple[Seen, str | None]:
    """What was seen, and what went wrong."""
    host, _, port = address.rpartition(":")
    stage = None
    signal.alarm(CASE_S_MAX)
    try:
        stage = Stage(host, int(port), prefix)
        case(stage)
        problem = None if stage.seen else "it looked at nothing"
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    try:
        signal.alarm(CASE_S_MAX)
        if stage is not None:
            stage.clear()
    except Exception as error:
        problem = problem or f"while clearing up: {type(error).__name__}: {error}"
    finally:
        signal.alarm(0)
    return (stage.seen if stage else []), problem


def difference(first: Seen, second: Seen) -> str | None:
    for (what, wanted), (other, found) in zip(first, second, strict=False):
        if (what, wanted) != (other, found):
            return f"{what}: {wanted!r}, and here {found!r}"
    if len(first) != len(second):
        return f"{len(first)} observations, and here {len(second)}"
    return None


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("right", nargs="?")
    parser.add_argument("other", nargs="?")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--case", default="", help="only cases with this in their name")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(name for name, _ in cases()))
        return 0
    if options.other is None:
        parser.error("two brokers, as host:port")
    signal.signal(signal.SIGALRM, _give_up)
    failed, count = 0, 0
    for number, (name, case) in enumerate(cases()):
        if options.case not in f"{name} {case.__name__}":
            continue
        count += 1
        prefix = f"case-{os.getpid()}-{number}"
        began = time.monotonic()
        seen, problem = play(case, options.right, prefix)
        if options.show:
            for what, value in seen:
                print(f"      {what}: {value!r}")
        if problem is None:
            other, problem = play(case, options.other, prefix)
            problem = problem or difference(seen, other)
        else:
            problem = f"with the broker that is right: {problem}"
        failed += problem is not None
        line = f"PASS  {name}" if problem is None else f"DIFF  {name}: {problem}"
        print(f"{line}  ({time.monotonic() - began:.1f} s)" if options.show else line, flush=True)
    print(f"{count} cases, {failed} different")
    return int(bool(failed) or not count)


def _give_up(*_: object) -> None:
    raise TooLong(f"after {CASE_S_MAX} s")


if __name__ == "__main__":
    sys.exit(main())
