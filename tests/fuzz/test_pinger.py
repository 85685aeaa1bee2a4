"""What counts as a stall of the broker, and what the machine did."""

import contextlib
import os
import socket
import threading

import pytest

from bench.pinger import Pinger, Scheduled, busy

IDLE = Scheduled(0.0, 0.0)


def test_what_the_system_let_them_wait_is_not_the_brokers() -> None:
    assert busy(0.2, Scheduled(0.0, 0.05), Scheduled(0.02, 0.13), []) == pytest.approx(0.02)


def test_a_loop_that_sleeps_may_wait_for_a_thread_that_is_not_let_run() -> None:
    kept = Scheduled(0.01, 0.15)
    assert busy(0.2, IDLE, Scheduled(0.02, 0.0), [IDLE, kept]) == pytest.approx(0.05)
    assert busy(0.2, IDLE, IDLE, [Scheduled(0.2, 0.0)]) == 0.2, "it ran, and held the lock"


def test_what_the_loop_ran_is_never_taken_off() -> None:
    kept = Scheduled(0.0, 0.2)
    assert busy(0.2, IDLE, Scheduled(0.2, 0.0), [kept]) == 0.2
    assert busy(0.2, IDLE, Scheduled(0.15, 0.0), [kept]) == pytest.approx(0.15)


def test_a_pinger_counts_its_pings() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with listening.accept()[0] as connection, contextlib.suppress(ConnectionError):
                while connection.recv(100):
                    connection.sendall(b"\0\0\0\0")

        thread = threading.Thread(target=answer)
        thread.start()
        with Pinger(*listening.getsockname(), os.getpid()) as pinger:
            waits = pinger.waits()
            while not waits.pings:
                waits = pinger.waits()
        thread.join()
    assert waits.busy_ms is not None
    assert waits.stall_ms == waits.busy_ms <= waits.broker_ms
