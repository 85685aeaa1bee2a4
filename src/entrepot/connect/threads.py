"""One thread for what blocks: database drivers, files on slow disks, functions of users.

One and no more, because a SQLite connection belongs to its thread, and because what was
asked for is then done in order: who closes waits for what is under way.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class OneThread:
    def __init__(self, name: str) -> None:
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=name)

    async def run(
        self,
        work: Callable[_Arguments, _Result],
        *arguments: _Arguments.args,
        **named: _Arguments.kwargs,
    ) -> _Result:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, lambda: work(*arguments, **named))

    def close(self) -> None:
        """What was asked for is still done; nobody waits for it here."""
        self._executor.shutdown(wait=False)
