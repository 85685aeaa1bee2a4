"""What the requirement page calls a proof, and whether the tests it names ran.

A row's last cell is one of

    not yet
    nothing to build: why
    proofs, separated by commas
    in part: proofs

A proof is a test as pytest names it (`tests/a.py::test_b`, with its class if it has one), or
a check with a client that is not ours to install (`compat/kcat: keys and headers`), which
must be in that folder's tests.allow.

    python -m tests.proofs build/tests-fast.xml build/tests-slow.xml

reads pytest's reports and names every row whose test was skipped, failed or did not run.
"""

import ast
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

PAGE = Path("docs") / "REQUIREMENTS.md"
NOTHING_TO_BUILD = "nothing to build: "
PASSED, SKIPPED, FAILED = "passed", "was skipped", "failed"

_PROOF = r"`(?:tests/[^`:]+\.py(?:::\w+)+|compat/[^`:]+: [^`]+)`"
_PROOFS = re.compile(rf"(?:in part: )?{_PROOF}(?:, {_PROOF})*")


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
    """Return what a row names as its proofs. Raises ValueError when it is not of that form."""
    if proof == "not yet" or (proof.startswith(NOTHING_TO_BUILD) and proof != NOTHING_TO_BUILD):
        return []
    if not _PROOFS.fullmatch(proof):
        raise ValueError(f"not a proof: {proof}")
    return [each.strip("`") for each in re.findall(_PROOF, proof)]


def exists(proof: str, root: Path) -> bool:
    if proof.startswith("compat/"):
        folder, _, check = proof.partition(": ")
        allowed = root / folder / "tests.allow"
        return allowed.is_file() and check in allowed.read_text("utf-8").splitlines()
    file, *names = proof.split("::")
    path = root / file
    return path.is_file() and "::".join(names) in _functions_of(path)


@cache
def _functions_of(path: Path) -> frozenset[str]:
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


def outcomes_of(reports: Iterable[str]) -> dict[str, str]:
    """Return how each test ended, by its dotted name, from pytest's reports (JUnit XML).

    What ran again in a later report ended as it did there. Of a test with several cases one that
    failed counts most, then one that passed.
    """
    cases: dict[tuple[str, str], str] = {}
    for report in reports:
        for case in ElementTree.fromstring(report).iter("testcase"):
            bad = case.find("failure") is not None or case.find("error") is not None
            ended = FAILED if bad else PASSED if case.find("skipped") is None else SKIPPED
            cases[case.get("classname", ""), case.get("name", "")] = ended
    order = (SKIPPED, PASSED, FAILED)
    outcomes: dict[str, str] = {}
    for (where, case_name), ended in cases.items():
        name = f"{where}.{case_name.partition('[')[0]}"
        outcomes[name] = max(ended, outcomes.get(name, SKIPPED), key=order.index)
    return outcomes


def unproven(rows: Iterable[Row], outcomes: Mapping[str, str]) -> list[str]:
    """Name the tests that are cited and did not pass."""
    found = []
    for row in rows:
        for proof in proofs_of(row.proof):
            if proof.startswith("tests/"):
                name = proof.replace(".py::", ".").replace("/", ".").replace("::", ".")
                ended = outcomes.get(name, "did not run")
                if ended != PASSED:
                    found.append(f"{row.number}: {proof} {ended}")
    return found


def main(reports: list[str]) -> int:
    rows = rows_of(PAGE.read_text("utf-8"))
    found = unproven(rows, outcomes_of(Path(report).read_text("utf-8") for report in reports))
    for line in found:
        print(line)
    states = {
        "proven": sum(bool(proofs_of(row.proof)) for row in rows),
        "of them in part": sum(row.proof.startswith("in part: ") for row in rows),
        "nothing to build": sum(row.proof.startswith(NOTHING_TO_BUILD) for row in rows),
        "not yet": sum(row.proof == "not yet" for row in rows),
    }
    counts = ", ".join(f"{count} {state}" for state, count in states.items())
    print(f"{len(rows)} requirements: {counts}; {len(found)} cited tests did not pass")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
