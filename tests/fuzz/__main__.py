"""The command line; see the package."""

import argparse
import signal
import sys
from pathlib import Path

from tests.fuzz.driver import SPEAKERS, Fuzzer, read_finding


def end(*_: object) -> None:
    """End this, and the broker with it. Once: it shall not be interrupted in that."""
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    sys.exit(143)


def main() -> int:
    signal.signal(signal.SIGTERM, end)
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--protocol", choices=SPEAKERS, default="kafka")
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="at most")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--connections", type=int, default=24, help="side by side")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="a directory")
    parser.add_argument("--replay", type=Path, help="send what a finding's file has")
    options = parser.parse_args()
    protocol, sessions = options.protocol, []
    if options.replay is not None:
        protocol, sessions = read_finding(options.replay)
    fuzzer = Fuzzer(
        protocol, options.seed, findings=options.findings, connections=options.connections
    )
    try:
        if options.replay is not None:
            fuzzer.replay(sessions)
        else:
            fuzzer.run(options.frames, options.seconds)
    finally:  # Also what there is when it is ended before its time.
        for kind, count in fuzzer.tally.kinds.items():
            print(f"{count} x {kind}")
        print(f"{protocol} seed={options.seed} {fuzzer.tally}", flush=True)
    return 0 if fuzzer.tally.is_clean else 1


sys.exit(main())
