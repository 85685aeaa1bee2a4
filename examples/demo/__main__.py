"""`python -m examples.demo`, which a Ctrl-C ends without a trace from its first moment on."""

import os
import signal
import sys

if __name__ == "__main__":
    # The rest takes a second to import, and handles signals when that is done.
    signal.signal(signal.SIGINT, lambda number, _: os._exit(128 + number))
    from examples.demo.story import main

    sys.exit(main(sys.argv[1:]))
