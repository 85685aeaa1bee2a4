"""What the driver of a query holds of a queue: one lease, kept alive while a batch runs.

A thread renews it, for Spark does not call while its tasks run. A restart of the broker
forgets all leases; then the same messages are leased again, as far as they are free. What
somebody else has got hold of meanwhile is told to whoever settles, and must be settled later:
else it might come to us a second time.

Spark does not wait for the driver of a query that failed: its successor may be at work while
it still reports the failure. So the successor waits until the predecessor's lease is gone. If
the lease is there, and was not renewed for a while, the predecessor was killed, and the lease
is taken over. Should it only have been very slow, all that it says about the lease is void.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from entrepot.client.errors import ClientError, Unreachable
from entrepot.client.queue_leases import Leased, LeaseGone, QueueLeases
from entrepot.spark.spans import Spans

ATTEMPTS = 50  # As often as `connecting` tries, and as long: some 25 seconds.
PAUSE_S = 0.5
RENEW_S_MAX = 1.0  # Between two looks at the lease: so soon a restart is noticed.
IDLE_S_MAX = 3 * RENEW_S_MAX  # Of a lease whose holder is alive.
LOOK_S = 0.1  # Between two looks at a predecessor's lease,
LOOKS = 600  # and how many. Its last words take half as long at most, if the broker is down.

NOTHING = Leased(None, [], [], [])

_Result = TypeVar("_Result")


class StillHeld(ClientError):
    """Another driver is at work on the same batch, and does not end."""


class Leaseholder:
    def __init__(self, api: QueueLeases, seconds: int) -> None:
        self._api = api
        self._seconds = seconds
        self._lease: str | None = None
        self._held = Spans()  # What the lease has,
        self._wanted = Spans()  # and what it is for.
        self._lock = threading.Lock()  # Of all of these.
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def lease(self) -> str | None:
        return self._lease

    @property
    def is_for_nothing(self) -> bool:
        """Whether the queue has none of the messages any more."""
        return not self._wanted

    def facts(self) -> dict[str, Any]:
        with self._lock:
            return self._retried(self._api.facts)

    def take(self, count: int) -> Spans:
        """Lease the next messages, at most so many, instead of those that were held before."""
        with self._lock:
            leased = self._retried(lambda: self._api.lease(count, self._seconds))
            self._hold(leased, Spans(leased.spans))
            return self._held

    def wait_for_predecessor(self, lease: str) -> bool:
        """Wait until a predecessor has ended; return whether it has left its lease to us.

        Raises StillHeld.
        """
        for _ in range(LOOKS):
            try:
                with self._lock:
                    idle_ms = self._retried(lambda: self._api.idle_ms(lease))
            except LeaseGone:
                return False
            if idle_ms > IDLE_S_MAX * 1_000:
                return True
            self._over.wait(LOOK_S)
        raise StillHeld("another driver of this query is still at work on its last batch")

    def resume(self, lease: str | None, rows: Spans, rest: Spans) -> Spans:
        """Hold what a predecessor held, without the rest. Returns what is gone: settled, dead,
        or about to be."""
        with self._lock:
            if lease is not None:
                try:
                    taken = self._retried(lambda: self._api.take_over(lease, rest, self._seconds))
                except LeaseGone:
                    pass
                else:
                    self._hold(Leased(taken, [*rows], [], []), rows)
                    return Spans()
            leased = self._retried(lambda: self._api.lease_again(rows, self._seconds))
            gone = rows - Spans(leased.spans) - (Spans(leased.others) - Spans(leased.dying))
            self._hold(leased, rows - gone)
            return gone

    def settle(self, rows: Spans) -> Spans:
        """Settle messages. Return those that are not, because somebody else has them."""
        with self._lock:
            had = rows & self._held
            if had and self._settle(self._lease, had):
                rows = rows - had
            self._hold(NOTHING, Spans())
            for _ in range(ATTEMPTS):
                if not rows:
                    return rows
                leased = self._retried(partial(self._api.lease_again, rows, self._seconds))
                if self._settle(leased.lease, Spans(leased.spans)):
                    return Spans(leased.others)
            raise Unreachable("leases of the queue are forgotten as soon as they are made")

    def settle_part(self, rows: Spans) -> bool:
        """Settle some of the leased messages; return whether they are settled for certain."""
        with self._lock:
            is_settled = self._settle(self._lease, rows)
            self._held, self._wanted = self._held - rows, self._wanted - rows
            return is_settled

    def renew(self) -> bool:
        """Renew the lease; return whether the messages are still held."""
        with self._lock:
            self._retried(self._renew)
            return self._lease is not None

    def give_back(self, *, failed: bool = False, reject: bool = False) -> None:
        """Give all messages back, without retries: else they come back when the lease ends."""
        with self._lock:
            lease, held = self._lease, self._held
            self._hold(NOTHING, Spans())
            if lease is None:
                return
            if reject:
                self._api.reject(lease, held)
            else:
                self._api.release(lease, held, failed=failed)

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        self._api.close()

    def _settle(self, lease: str | None, rows: Spans) -> bool:
        """Settle messages; return False if the lease is gone, and with it what was settled."""
        if lease is None:
            return True
        try:
            self._retried(lambda: self._api.settle(lease, rows))
        except LeaseGone:
            return False
        return True

    def _hold(self, leased: Leased, wanted: Spans) -> None:
        self._lease, self._held, self._wanted = leased.lease, Spans(leased.spans), wanted
        if wanted and self._thread is None:
            self._thread = threading.Thread(target=self._keep_alive, daemon=True)
            self._thread.start()

    def _retried(self, ask: Callable[[], _Result]) -> _Result:
        for _ in range(ATTEMPTS - 1):
            try:
                return ask()
            except ClientError as error:
                if not error.retriable:
                    raise
            if self._over.wait(PAUSE_S):
                break
        return ask()

    def _keep_alive(self) -> None:
        while not self._over.wait(min(self._seconds / 3, RENEW_S_MAX)):
            with self._lock:
                if self._wanted:
                    try:
                        self._renew()
                    except ClientError:
                        continue  # The broker may be back by the next time.

    def _renew(self) -> None:
        if self._lease is not None:
            try:
                self._api.renew(self._lease, self._seconds)
            except LeaseGone:
                pass
            else:
                return
        self._hold(self._api.lease_again(self._wanted, self._seconds), self._wanted)
