"""docs/REQUIREMENTS.md is complete, and every proof it names exists.

`tests/proofs.py` says what a proof is, and finds out whether the tests also ran.
"""

from pathlib import Path

import pytest

from tests.proofs import Row, exists, outcomes_of, proofs_of, rows_of, unproven

ROOT = Path(__file__).parent.parent

# How many rows each section has. The numbers are fixed: others refer to them.
SECTIONS = {
    "A": 12, "B": 11, "C": 12, "D": 10, "E": 6, "F": 8, "G": 5, "H": 15, "I": 11,
    "J": 6, "K": 10, "L": 5, "M": 14, "N": 7, "O": 6, "P": 11, "Q": 5, "R": 22,
    "S": 12, "T": 26, "U": 2, "V": 9, "W": 16, "X": 15, "Y": 7, "Z": 7, "AA": 3,
    "AB": 10, "AC": 6, "AD": 5, "AE": 1, "NUM": 25, "SYS": 46, "ZZ": 22,
}  # fmt: skip
UNPADDED = ("NUM", "SYS", "ZZ")
NO_PRIORITY = "\N{EN DASH}"


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return rows_of((ROOT / "docs" / "REQUIREMENTS.md").read_text("utf-8"))


def test_every_number_is_there_once_and_in_order(rows: list[Row]) -> None:
    expected = [
        f"{section}-{index}" if section in UNPADDED else f"{section}-{index:02}"
        for section, count in SECTIONS.items()
        for index in range(1, count + 1)
    ]
    assert [row.number for row in rows] == expected


def test_every_row_says_what_and_how_much_it_matters(rows: list[Row]) -> None:
    for row in rows:
        priorities = {NO_PRIORITY} if row.number.startswith(UNPADDED) else {"P1", "P2", "P3"}
        assert row.priority in priorities, row
        assert row.what, row


def test_every_proof_exists(rows: list[Row]) -> None:
    named = [(row.number, proof) for row in rows for proof in proofs_of(row.proof)]
    assert [pair for pair in named if not exists(pair[1], ROOT)] == []


def test_what_a_proof_is() -> None:
    assert proofs_of("not yet") == []
    assert proofs_of("nothing to build: the remark is a slip of the pen") == []
    assert proofs_of("in part: `tests/a.py::test_b`, `compat/go: one, two`") == [
        "tests/a.py::test_b",
        "compat/go: one, two",
    ]
    for wrong in (
        *("", "soon", "`tests/a.py`", "tests/a.py::test_b", "`compat/go`", "nothing to build: "),
        *("not yet, `tests/a::b`", "`tests/a.py::test_b` and more"),
    ):
        with pytest.raises(ValueError, match="not a proof"):
            proofs_of(wrong)


def test_a_proof_that_is_not_there_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("def test_a(): ...\nclass TestB:\n  def test_c(): ...\n")
    assert exists("test_x.py::test_a", tmp_path)
    assert exists("test_x.py::TestB::test_c", tmp_path)
    assert not exists("test_x.py::test_b", tmp_path)
    assert not exists("test_x.py::test_c", tmp_path)
    assert not exists("test_y.py::test_a", tmp_path)
    (tmp_path / "compat" / "go").mkdir(parents=True)
    (tmp_path / "compat" / "go" / "tests.allow").write_text("one, two\n")
    assert exists("compat/go: one, two", tmp_path)
    assert not exists("compat/go: one", tmp_path)
    assert not exists("compat/node: one, two", tmp_path)


RESULTS = """<testsuites><testsuite>
<testcase classname="tests.unit.test_a" name="test_ran[1]" />
<testcase classname="tests.unit.test_a" name="test_ran[2]"><skipped /></testcase>
<testcase classname="tests.unit.test_a.TestB" name="test_ran" />
<testcase classname="tests.unit.test_a" name="test_skipped"><skipped /></testcase>
<testcase classname="tests.unit.test_a" name="test_failed"><failure /></testcase>
</testsuite></testsuites>"""


def test_a_proof_that_did_not_run_is_noticed() -> None:
    """One case of a test with several is enough to say that it ran; a failed one is too much."""
    outcomes = outcomes_of([RESULTS])
    names = ("test_ran", "TestB::test_ran", "test_skipped", "test_failed", "test_elsewhere")
    rows = [Row(name, "P1", "", f"`tests/unit/test_a.py::{name}`") for name in names]
    assert unproven(rows, outcomes) == [
        "test_skipped: tests/unit/test_a.py::test_skipped was skipped",
        "test_failed: tests/unit/test_a.py::test_failed failed",
        "test_elsewhere: tests/unit/test_a.py::test_elsewhere did not run",
    ]


def test_what_ran_again_ended_as_it_did_then() -> None:
    again = """<testsuite>
        <testcase classname="tests.unit.test_a" name="test_failed" />
        </testsuite>"""
    name = "tests.unit.test_a.test_failed"
    assert outcomes_of([RESULTS])[name] == "failed"
    assert outcomes_of([RESULTS, again])[name] == "passed"
    assert outcomes_of([RESULTS, again, RESULTS])[name] == "failed"
