"""docs/REQUIREMENTS.md is complete, and every proof it names is a test that exists.

A row's last cell is `not yet`, or tests, or `in part:` and tests. A test is named as
pytest names it: a file, `::`, perhaps a class, a function.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

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


class Row(NamedTuple):
    number: str
    priority: str
    what: str
    proof: str


def rows_of(text: str) -> list[Row]:
    rows = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and re.fullmatch(r"[A-Z]+-\d+", cells[0]):
            assert len(cells) == 4, f"not four cells: {line}"
            rows.append(Row(*cells))
    return rows


def proofs_of(proof: str) -> list[str]:
    """The tests a proof names; empty for `not yet`. Raises ValueError for anything else."""
    if proof == "not yet":
        return []
    names = proof.removeprefix("in part: ").split(", ")
    tests = [name.strip("`") for name in names if re.fullmatch(r"`tests/[^`]+::[^`]+`", name)]
    if len(tests) != len(names):
        raise ValueError(f"neither `not yet` nor tests: {proof}")
    return tests


def exists(test: str, root: Path = ROOT) -> bool:
    file, *names = test.split("::")
    path = root / file
    return path.is_file() and "::".join(names) in functions_of(path)


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Test functions of a file, those in classes as `Class::function`."""
    names = []
    for node in ast.parse(path.read_text("utf-8")).body:
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        prefix = f"{node.name}::" if isinstance(node, ast.ClassDef) else ""
        names += [
            prefix + function.name
            for function in inner
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            and function.name.startswith("test_")
        ]
    return frozenset(names)


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


def test_every_named_test_exists(rows: list[Row]) -> None:
    named = [(row.number, test) for row in rows for test in proofs_of(row.proof)]
    assert [pair for pair in named if not exists(pair[1])] == []


def test_a_proof_is_tests_or_not_yet() -> None:
    assert proofs_of("not yet") == []
    assert proofs_of("in part: `tests/a.py::test_b`, `tests/a.py::test_c`") == [
        "tests/a.py::test_b",
        "tests/a.py::test_c",
    ]
    for wrong in ("", "soon", "`tests/a.py`", "tests/a.py::test_b", "not yet, `tests/a::b`"):
        with pytest.raises(ValueError, match="neither"):
            proofs_of(wrong)


def test_a_test_that_is_not_there_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "test_x.py").write_text("def test_a(): ...\nclass TestB:\n  def test_c(): ...\n")
    assert exists("test_x.py::test_a", tmp_path)
    assert exists("test_x.py::TestB::test_c", tmp_path)
    assert not exists("test_x.py::test_b", tmp_path)
    assert not exists("test_x.py::test_c", tmp_path)
    assert not exists("test_y.py::test_a", tmp_path)
