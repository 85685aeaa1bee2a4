"""Whoever applies the rules: a client, and as many of it as there should be.

Topics: what was read and what was written are one transaction, so every record is converted exactly
once. One runner of all does that, the oldest, and the next takes over when it is gone; whoever has
only been slow is fenced off by the transaction's id. Queues: taking and putting are one transaction
too, all runners compete, and only a broker that is killed in the middle of a commit may have
something done twice. What cannot be converted goes to `NAME.rejected`, with the reason.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from entrepot.client.errors import ClientError
from entrepot.client.messaging.client import AsyncClient
from entrepot.client.messaging.groups import Group
from entrepot.client.messaging.topics import Append, Entry
from entrepot.client.transactions import Transactions
from entrepot.core.clock import SystemEntropy
from entrepot.transform.refusal import Refused
from entrepot.transform.repository import Conversion, Format, Repository, Rule

GROUP = "entrepot.transform"
REASON = "transform-error"
REJECTED = ".rejected"
BATCH_MAX = 200
POLL_S = 0.5
PAUSE_S = 1.0

_Applied = tuple[Rule, Format | None, Format | None]

logger = logging.getLogger("entrepot.transform")


class Overtaken(ClientError):
    """Somebody else goes on where we were."""


class Runner:
    """Applies all rules, also those that are added meanwhile."""

    def __init__(self, client: AsyncClient) -> None:
        self.repository = Repository(client)
        self.converted = 0
        self.rejected = 0
        self._client = client
        self._name = SystemEntropy().token(6).hex()
        self._group: Group | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}  # By the rule's name.
        self._applied: dict[str, _Applied] = {}  # What those tasks do.
        self._wake = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled. Raises ClientError."""
        await self.repository.start()
        self.repository.changed = self._wake.set
        self._group = await self._client.group(GROUP, member=self._name)
        await self._group.join()
        try:
            while True:
                await self._follow()
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), PAUSE_S)
                self._wake.clear()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _follow(self) -> None:
        """Begin what is new, end what is gone or has another format now."""
        assert self._group is not None
        if self._group.was_excluded:
            await self._group.join()
        leads = self._group.leader == self._name
        wanted = {
            rule.name: self._with_formats(rule)
            for rule in self.repository.rules.values()
            if leads or rule.source.kind == "queue"
        }
        for name, task in [*self._tasks.items()]:
            if task.done() or self._applied[name] != wanted.get(name):
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                del self._tasks[name]
        for name, applied in wanted.items():
            if name not in self._tasks:
                self._applied[name] = applied
                self._tasks[name] = asyncio.create_task(self._apply(applied[0]))

    def _with_formats(self, rule: Rule) -> _Applied:
        formats = self.repository.formats
        return rule, formats.get(rule.source_format), formats.get(rule.target_format)

    async def _apply(self, rule: Rule) -> None:
        """Apply a rule; after a failure, again after a pause."""
        work = self._queues if rule.source.kind == "queue" else self._topics
        try:
            await work(self.repository.conversion(rule))
        except (ClientError, Refused) as error:
            logger.warning("rule %s pauses: %s", rule.name, error)
        except Exception:  # A mistake of ours: the other rules go on, and this one tries again.
            logger.exception("rule %s pauses", rule.name)
        await asyncio.sleep(PAUSE_S)

    async def _topics(self, conversion: Conversion) -> None:
        rule = conversion.rule
        name = f"{GROUP}.{rule.name}"  # Of the group, and of its transactions.
        topic = await self._client.topic(rule.source.name)
        # What a runner that was killed has left open hides how far it was.
        await Transactions(await self._client.kafka()).take(name)
        reader = await topic.read(group=name)
        try:
            known = await reader.committed()
            for partition, offset in known.items():
                reader.seek(offset, partition)
            while True:
                entries = await reader.poll(POLL_S)
                if not entries:
                    continue
                async with self._client.topic_transaction(name) as transaction:
                    # Whoever did this before us is fenced off from here on, and not earlier.
                    if await reader.committed() != known:
                        raise Overtaken(f"{rule.source} was read by another runner")
                    for target, appends in (await self._sorted(conversion, entries)).items():
                        await transaction.append_many(target, appends)
                    await transaction.commit_position(reader)
                known = reader.positions
        finally:
            await reader.stop()

    async def _sorted(
        self, conversion: Conversion, entries: list[Entry]
    ) -> dict[str, list[Append]]:
        """Return what records become, by the topic they go to."""
        found: dict[str, list[Append]] = {}
        for entry in entries:
            await asyncio.sleep(0)  # Others are to hear of us meanwhile, or we are suspected.
            headers: dict[str, str | bytes | None] = dict(entry.headers)
            target = conversion.rule.target.name
            body, reason = self._attempt(conversion, entry.body)
            if reason is None:
                headers["content-type"] = conversion.content_type
            else:
                target += REJECTED
                headers[REASON] = reason
            found.setdefault(target, []).append(Append(body, entry.key, headers))
        return found

    async def _queues(self, conversion: Conversion) -> None:
        rule = conversion.rule
        while True:
            async with self._client.transaction() as transaction:
                found = await _or_none(lambda: transaction.get(rule.source.name, timeout_s=POLL_S))
                for _ in range(BATCH_MAX):
                    if found is None:
                        break
                    body, reason = self._attempt(conversion, found.body)
                    headers = dict(found.headers)
                    if reason is not None:
                        headers[REASON] = reason
                    is_good = reason is None
                    await transaction.put(
                        rule.target.name + ("" if is_good else REJECTED),
                        body,
                        id=found.id,
                        correlation_id=found.correlation_id,
                        reply_to=found.reply_to,
                        type=found.type,
                        headers=headers,
                        priority=found.priority or None,
                        expires_s=found.expires_s,
                        content_type=conversion.content_type if is_good else found.content_type,
                    )
                    found = await _or_none(lambda: transaction.get(rule.source.name, timeout_s=0))

    def _attempt(self, conversion: Conversion, data: bytes) -> tuple[bytes, str | None]:
        """Return the message, converted, or as it is and why it cannot be."""
        try:
            converted = conversion.convert(data)
        except Refused as refusal:
            self.rejected += 1
            return data, str(refusal)[:500]
        self.converted += 1
        return converted, None


async def _or_none(get: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
    try:
        return await get()
    except TimeoutError:
        return None
