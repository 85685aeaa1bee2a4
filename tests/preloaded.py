"""Imports all that a broker may need, and then its memory is ready to be shared by forks."""

import gc

from entrepot import config
from entrepot.wire.kafka.kio_loading import load_kio

load_kio()

import uvloop  # noqa: E402, F401

import entrepot.cli.serve  # noqa: E402
import entrepot.server  # noqa: E402
import entrepot.workers  # noqa: E402, F401
from entrepot.housekeeping import imports_of  # noqa: E402

for protocol in dict.fromkeys(name.removesuffix("_tls") for name in config.PROTOCOLS):
    for do_import in imports_of(protocol):
        do_import()

gc.collect()
gc.freeze()
