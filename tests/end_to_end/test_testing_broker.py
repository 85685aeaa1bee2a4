"""The broker for tests comes back on its ports, even if somebody else has one for a while."""

import socket
import threading

from entrepot.testing import broker


def test_a_port_that_is_taken_for_a_while() -> None:
    with broker() as started:
        before = started.endpoints
        started.kill()
        with socket.socket() as other:
            other.bind(("127.0.0.1", before["amqp"][1]))
            other.listen()
            freed = threading.Timer(0.5, other.close)
            freed.start()
            started.start()
            freed.join()
        assert started.endpoints == before
        assert "Address already in use" in started.log_path.read_text()
