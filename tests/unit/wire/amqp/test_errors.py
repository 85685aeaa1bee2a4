"""Reply codes, what they end, and what is said of them."""

import pytest

from entrepot.core.errors import PeerError
from entrepot.wire.amqp.errors import TEXT_BYTES_MAX, AmqpError, ReplyCode


@pytest.mark.parametrize("code", [311, 312, 313, 403, 404, 405, 406])
def test_a_soft_error_closes_its_channel(code: int) -> None:
    assert not AmqpError(ReplyCode(code), "x", channel=3).closes_connection


@pytest.mark.parametrize("code", [320, 402, 501, 502, 503, 504, 505, 506, 530, 540, 541])
def test_a_hard_error_closes_the_connection(code: int) -> None:
    assert AmqpError(ReplyCode(code), "x", channel=3).closes_connection


def test_channel_0_cannot_be_closed_alone() -> None:
    assert AmqpError(ReplyCode.NOT_FOUND, "x").closes_connection


def test_the_text_names_the_code() -> None:
    error = AmqpError(ReplyCode.NOT_FOUND, "no queue 'work'", channel=1, method_id=(50, 10))
    assert isinstance(error, PeerError)
    assert error.text == str(error) == "NOT_FOUND - no queue 'work'"
    assert (error.code, error.channel, error.method_id) == (404, 1, (50, 10))


@pytest.mark.parametrize("explanation", ["x" * 300, "ü" * 200, "\udcff" * 300, "\U0001f407" * 80])
def test_the_text_fits_a_short_string(explanation: str) -> None:
    text = AmqpError(ReplyCode.FRAME_ERROR, explanation).text
    assert TEXT_BYTES_MAX - 3 <= len(text.encode()) <= TEXT_BYTES_MAX
    assert text.endswith("...")
