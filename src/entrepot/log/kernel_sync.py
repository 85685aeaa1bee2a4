"""Syncs files without a thread: the kernel is asked to, and says on an eventfd when it is done.

A thread has to get hold of the interpreter twice for a sync, while the loop wants it, too: that
takes several times the processor time of the sync itself, and every durable message that comes
alone waits for it. Linux has asynchronous calls for it (`io_submit`, with the operation that is
`fdatasync`); there is no module of Python for them, so they are made through ctypes. Where they are
missing or refused, threads do it: `start` returns None.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import errno
import os
import platform
import sys
from struct import Struct
from typing import NamedTuple, Protocol

# Numbers of the system calls that create and destroy a context, get events, and submit.
_CALLS = {"x86_64": (206, 207, 208, 209), "aarch64": (0, 1, 4, 2)}
_AT_ONCE_MAX = 32  # Syncs that are not done; others are for threads.
# A request: number, key, flags, operation, priority, descriptor, buffer, bytes, offset, reserved,
# flags, eventfd. An event: number, address of the request, result, second result.
_REQUEST = Struct("<QIIHhIQQqQII")
_EVENT = Struct("<QQqq")
_FDATASYNC, _TELL_EVENTFD = 3, 1


class Numbered(Protocol):
    """An open file. It is not closed while somebody refers to it."""

    @property
    def number(self) -> int: ...


class _Sync(NamedTuple):
    descriptor: Numbered
    done: asyncio.Future[OSError | None]


class KernelSyncs:
    """Raises OSError if the kernel does not offer asynchronous syncs."""

    _is_open = False

    def __init__(self) -> None:
        calls = _CALLS.get(platform.machine())
        if sys.platform != "linux" or calls is None or sys.byteorder != "little":
            raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
        setup, self._destroy, self._get_events, self._submit = calls
        self._context = ctypes.c_ulong(0)
        # These calls are short: the interpreter is not let go for them.
        self._call = ctypes.PyDLL(None, use_errno=True).syscall
        if self._call(setup, _AT_ONCE_MAX, ctypes.byref(self._context)):
            raise OSError(ctypes.get_errno(), "io_setup")
        self._eventfd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._request = ctypes.create_string_buffer(_REQUEST.size)
        self._requests = (ctypes.c_void_p * 1)(ctypes.addressof(self._request))
        self._events = ctypes.create_string_buffer(_AT_ONCE_MAX * _EVENT.size)
        self._loop: asyncio.AbstractEventLoop | None = None  # The one that watches the eventfd.
        self._syncs: dict[int, _Sync] = {}  # Those that are not done, by number.
        self._number = 0  # Of the last one.
        self._is_open = True

    def start(self, descriptor: Numbered) -> asyncio.Future[OSError | None] | None:
        """Start to sync a file; the future gets the error, or None. None means: not started."""
        if len(self._syncs) >= _AT_ONCE_MAX:
            return None
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            self._watch(loop)
        self._number += 1
        fields = (0, 0, _FDATASYNC, 0, descriptor.number, 0, 0, 0, 0, _TELL_EVENTFD, self._eventfd)
        _REQUEST.pack_into(self._request, 0, self._number, *fields)
        if self._call(self._submit, self._context, 1, self._requests) != 1:
            return None
        done: asyncio.Future[OSError | None] = loop.create_future()
        self._syncs[self._number] = _Sync(descriptor, done)
        return done

    def _watch(self, loop: asyncio.AbstractEventLoop) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._eventfd)
        self._loop = loop
        loop.add_reader(self._eventfd, self._ready)

    def _ready(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._eventfd)
        self._take(0)

    def _take(self, count_min: int) -> None:
        """Answer the syncs that are done; wait until there are so many."""
        events = self._events
        count = self._call(self._get_events, self._context, count_min, _AT_ONCE_MAX, events, None)
        for place in range(count):
            number, _, result, _ = _EVENT.unpack_from(events, place * _EVENT.size)
            done = self._syncs.pop(number).done
            if not done.done() and not done.get_loop().is_closed():
                done.set_result(OSError(-result, os.strerror(-result)) if result else None)

    def close(self) -> None:
        """Wait for the syncs that are under way, and give everything back to the kernel."""
        while self._syncs:
            self._take(1)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.remove_reader(self._eventfd)
        self._loop = None
        self._release()

    def _release(self) -> None:
        if self._is_open:
            self._is_open = False
            self._call(self._destroy, self._context)
            os.close(self._eventfd)

    def __del__(self) -> None:
        self._release()
