"""How long push-pull among 100,000 nodes takes, until all know an update.

    python -m bench.gossip                 100,000 nodes: the target is a minute
    python -m bench.gossip --nodes 10000

The nodes are the state machines that real nodes run, in one process. Too slow is exit code 1.
"""

import argparse
import sys
import time

from entrepot.cluster.gossip.framework import Mode
from entrepot.lab.spreading import anti_entropy

SECONDS_MAX = 60.0


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    begin, used = time.perf_counter(), time.process_time()
    rounds, messages, _, _ = anti_entropy(given.nodes, Mode.PUSH_PULL, given.seed)
    seconds, processor = time.perf_counter() - begin, time.process_time() - used
    print(
        f"{given.nodes} nodes: all know after {rounds} rounds and {messages} messages, in "
        f"{seconds:.1f} s, of the processor {processor:.1f} s (at most {SECONDS_MAX:.0f} s)"
    )
    if seconds > SECONDS_MAX:
        sys.exit(1)


if __name__ == "__main__":
    main()
