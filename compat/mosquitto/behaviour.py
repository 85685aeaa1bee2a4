"""Do two MQTT brokers behave alike? Every case is run on both, and what is seen is compared.

    python compat/mosquitto/behaviour.py HOST:PORT HOST:PORT [--case WORDS] [--show] [--list]

The first broker is the one that is right, except where `explained.py` says what is. One line per
case: PASS, or what was different. A case that raises something, on either of them, has failed.
`--show` prints everything that the first one showed.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import cases_bad_input
import cases_connecting
import cases_five
import cases_names
import cases_publishing
import cases_retained
import cases_sessions
import cases_subscribing
import cases_time
import cases_wills
from explained import EXPLAINED
from packets import V5, V31, V311
from stage import WORDS, Stage

MODULES = (
    cases_connecting,
    cases_bad_input,
    cases_names,
    cases_subscribing,
    cases_publishing,
    cases_retained,
    cases_sessions,
    cases_wills,
    cases_five,
    cases_time,
)

Case = Callable[[Stage], None]
Seen = list[tuple[str, object]]


def cases() -> Iterator[tuple[str, Case, int]]:
    for module in MODULES:
        for name, value in vars(module).items():
            if _is_case(module, name, value):
                words = (value.__doc__ or name).strip().splitlines()[0]
                for version in getattr(value, "versions", (V31, V311, V5)):
                    yield f"{words} (MQTT {WORDS[version]})", value, version


def _is_case(module: ModuleType, name: str, value: object) -> bool:
    is_ours = getattr(value, "__module__", None) == module.__name__
    return callable(value) and is_ours and not name.startswith("_") and not isinstance(value, type)


def play(case: Case, address: str, version: int) -> tuple[Seen, str | None]:
    """What was seen, and what went wrong."""
    stage = Stage(address, version)
    problem: str | None = None
    for work in (lambda: case(stage), stage.clear):
        try:
            work()
        except Exception as error:
            problem = problem or f"{type(error).__name__}: {error}"
    if not stage.seen:
        problem = problem or "it looked at nothing"
    return stage.seen, problem


def differences(name: str, first: Seen, second: Seen) -> Iterator[str]:
    """What is different and not explained, and what is explained and not different."""
    if [what for what, _ in first] != [what for what, _ in second]:
        yield f"{len(first)} observations, and here {len(second)}"
        return
    explained = EXPLAINED.get(name, {})
    for (what, wanted), (_, found) in zip(first, second, strict=True):
        told = explained.get(what)
        if told is not None:
            if told != (str(wanted), str(found)):
                yield f"{what}: explained for {told}, and it is {wanted!r}, and here {found!r}"
        elif wanted != found:
            yield f"{what}: {wanted!r}, and here {found!r}"


def compare(
    name: str, case: Case, version: int, addresses: Sequence[str]
) -> tuple[Seen, list[str]]:
    """Run a case on both brokers at once."""
    with ThreadPoolExecutor(2) as pool:
        plays = [pool.submit(play, case, each, version) for each in addresses]
        (right, wrong), (other, problem) = [each.result() for each in plays]
    if wrong is not None:
        return right, [f"with the broker that is right: {wrong}"]
    return right, [problem] if problem is not None else [*differences(name, right, other)]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("right", nargs="?")
    parser.add_argument("other", nargs="?")
    parser.add_argument("--list", action="store_true", help="name the cases and stop")
    parser.add_argument("--case", default="", help="only cases with this in their name")
    parser.add_argument("--version", choices=[*WORDS.values()], help="only this one of MQTT")
    parser.add_argument("--show", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(name for name, _, _ in cases()))
        return 0
    if options.other is None:
        parser.error("two brokers, as host:port")
    failed, count = 0, 0
    for name, case, version in cases():
        if options.case not in f"{name} {case.__module__}.{case.__name__}":
            continue
        if options.version not in (None, WORDS[version]):
            continue
        count += 1
        began = time.monotonic()
        seen, problems = compare(name, case, version, (options.right, options.other))
        if options.show:
            for what, value in seen:
                print(f"      {what}: {value!r}")
        failed += bool(problems)
        line = f"DIFF  {name}: {'; '.join(problems)}" if problems else f"PASS  {name}"
        print(f"{line}  ({time.monotonic() - began:.1f} s)" if options.show else line, flush=True)
    print(f"{count} cases, {failed} different")
    return int(bool(failed) or not count)


if __name__ == "__main__":
    sys.exit(main())
