import pytest

from entrepot.core.faults import Faults, Uncaught


def fail(number: int) -> None:
    raise LookupError(f"mistake {number}")


def test_a_mistake_is_counted_and_logged_with_its_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    faults = Faults()
    for number in (1, 2):
        faults.guard("a timer", fail, number)
        assert faults.count == number
        logged = caplog.records[-1]
        assert logged.getMessage() == f"internal error {number}: a timer"
        # Not caplog.text: once loaded, PySpark formats the records of pytest as JSON.
        kind, error, traceback = logged.exc_info
        assert (kind, str(error)) == (LookupError, f"mistake {number}")
        assert traceback is not None


def test_a_simulation_ends_with_it() -> None:
    with pytest.raises(LookupError, match="mistake 1"):
        Uncaught().guard("a timer", fail, 1)
