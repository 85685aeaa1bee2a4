"""The tx class: transactions of one channel."""

from dataclasses import dataclass

from entrepot.wire.amqp.method import Method


@dataclass(frozen=True, slots=True)
class Select(Method):
    ID = (90, 10)
    NAME = "tx.select"


@dataclass(frozen=True, slots=True)
class SelectOk(Method):
    ID = (90, 11)
    NAME = "tx.select-ok"


@dataclass(frozen=True, slots=True)
class Commit(Method):
    ID = (90, 20)
    NAME = "tx.commit"


@dataclass(frozen=True, slots=True)
class CommitOk(Method):
    ID = (90, 21)
    NAME = "tx.commit-ok"


@dataclass(frozen=True, slots=True)
class Rollback(Method):
    ID = (90, 30)
    NAME = "tx.rollback"


@dataclass(frozen=True, slots=True)
class RollbackOk(Method):
    ID = (90, 31)
    NAME = "tx.rollback-ok"
