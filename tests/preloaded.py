"""Imports all that a broker may need. `tests/forking.py` has it imported by what forks."""

import gc
from importlib import import_module

from entrepot.config import PROTOCOLS
from entrepot.wire.kafka.kio_loading import load_kio

load_kio()
for name in ("uvloop", "entrepot.cli.serve", "entrepot.server", "entrepot.workers"):
    import_module(name)
imports_of = import_module("entrepot.housekeeping").imports_of
for protocol in dict.fromkeys(name.removesuffix("_tls") for name in PROTOCOLS):
    for do_import in imports_of(protocol):
        do_import()
gc.collect()
gc.freeze()  # Else each fork would copy the memory when it looks for garbage.
