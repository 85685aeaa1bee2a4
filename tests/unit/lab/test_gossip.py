"""The labs of gossip: what the lectures say is what is seen."""

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner

from entrepot.cli import main
from entrepot.lab.averaging import aggregates
from entrepot.lab.gossip import LABS
from entrepot.lab.neighbours import SLIDE, counter, nine
from entrepot.lab.spreading import (
    complete,
    failures,
    line,
    modes,
    residue,
    residues,
    rounds_over_nodes,
    variants,
)
from entrepot.lab.table import Table
from entrepot.lab.timed import bimodal, detection, mistakes

RESIDUES = (0.203188, 0.059520, 0.019827, 0.006977, 0.002516, 0.000918, 0.000336)
NODES = (2032, 595, 198, 70, 25, 9, 3)


def column(table: Table, name: str) -> list[float]:
    return [row[table.columns.index(name)] for row in table.rows]


def test_the_residue_solved() -> None:
    assert [round(residue(k), 6) for k in range(1, 8)] == list(RESIDUES)
    assert [round(residue(k) * 10_000) for k in range(1, 8)] == list(NODES)


def test_the_residue_seen() -> None:
    table = residues(10_000, 1, 3, last=2)
    assert column(table, "residue_seen") == pytest.approx(RESIDUES[:2], rel=0.15)
    assert "0.203188" in table.text()


@pytest.mark.slow
def test_the_whole_table_of_residues() -> None:
    """Within 15 %, or three deviations of the mean where only a handful of nodes is left."""
    runs = 4
    seen = column(residues(10_000, runs, 2), "nodes_seen")
    for expected, found in zip(NODES, seen, strict=True):
        assert abs(found - expected) < max(0.15 * expected, 3 * math.sqrt(expected / runs))


def test_rounds_grow_with_the_logarithm() -> None:
    table = rounds_over_nodes((100, 300, 1_000), 1)
    slope, _, fit = line(column(table, "ln_N"), column(table, "rounds"))
    assert 0.5 < slope < 1.5
    assert fit > 0.9
    per = column(table, "messages_per_N_ln_ln_N")
    assert max(per) < 4
    assert per[-1] <= per[0]


@pytest.mark.slow
def test_a_hundred_thousand_nodes() -> None:
    table = rounds_over_nodes((100, 1_000, 10_000, 100_000), 1)
    _, _, fit = line(column(table, "ln_N"), column(table, "rounds"))
    assert fit > 0.95
    assert column(table, "rounds")[-1] < 2 * math.log(100_000)
    assert max(column(table, "messages_per_N_ln_ln_N")) < 4


def test_modes() -> None:
    table = modes(300, 1)
    assert column(table, "equal_states") == [True] * 4
    push, pull, both, digests = column(table, "rounds")
    assert both < pull
    assert both < push
    assert digests <= push
    assert column(table, "with_the_update")[3] < 2 * 300  # Only to those that miss it.


def test_a_residue_is_what_the_messages_leave() -> None:
    table = variants(500, 2, 1)
    assert column(table, "residue") == pytest.approx(column(table, "exp_of_minus_that"), abs=0.05)


def test_a_rumor_and_anti_entropy_reach_all() -> None:
    alone, *together = column(complete(500, 1), "share")
    assert alone < 1
    assert together == [1, 1]


def test_half_of_the_nodes_are_down() -> None:
    small, large = failures(50, 1), failures(500, 1)
    assert column(small, "reached") == column(large, "reached") == [1] * 8
    load = "messages_per_node_and_round"
    assert column(small, load)[0] == column(large, load)[0] == 2
    assert max(column(large, load)) == 2


def test_eleven_messages_and_seven_of_nine_nodes() -> None:
    table = nine(1_000, 1)
    flooding, mean, slide = table.rows[:3]
    assert flooding[1:3] == (28.0, 9.0)
    assert slide[1:3] == SLIDE
    assert slide[3] > 0
    assert mean[1] < flooding[1] / 2
    assert mean[2] > 6


def test_the_blind_counter_against_flooding() -> None:
    table = counter(1_000, 2, 1)
    assert table.rows[0][3:] == (0.5, 0.9, 2.0)
    for name, _, _, messages, coverage, slower in table.rows[1:]:
        assert messages == pytest.approx(0.5, abs=0.08), name
        assert coverage > 0.88, name
        assert 1.5 < slower < 4, name


def test_almost_all_or_almost_none() -> None:
    table = bimodal(50, 80, 1)
    events = column(table, "events")
    assert sum(events) == 80
    assert events[0] > 0
    assert events[1:7] == [0] * 6
    assert events[8] + events[9] > 60
    _, latencies = table.pictures
    at_once, later = latencies.curves[0].y[0], sum(latencies.curves[0].y[1:])
    assert at_once > later > 0.1 * at_once


def test_aggregates() -> None:
    table = aggregates(200, 20, 1)
    last = dict(zip(table.columns, table.rows[-1], strict=True))
    assert last["average_at_worst"] == pytest.approx(99.5, rel=0.001)
    assert last["count_at_worst"] == pytest.approx(200, rel=0.02)
    assert last["sum_at_worst"] == pytest.approx(99.5 * 200, rel=0.02)
    assert (last["know_minimum"], last["know_maximum"]) == (200, 200)


def test_detection_does_not_depend_on_how_many_there_are() -> None:
    table = detection((8, 16), 3, 1)
    assert column(table, "first_probe_seen") == pytest.approx([1.58] * 2, abs=0.8)
    loads = column(table, "messages_per_member_and_period")
    assert loads == pytest.approx([2.3] * 2, abs=0.4)


def test_nobody_is_suspected_when_nothing_is_lost() -> None:
    none, few, *_ = mistakes(8, 1, 15.0).rows
    assert none == (0.0, 0, 0, 1.0)
    assert few[2] == 0


def test_the_command_prints_and_draws(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "nine.png"
    arguments = ["gossip", "lab", "nine", "--runs", "50", "--plot", str(picture)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert "the lectures' example" in result.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_the_command_is_the_same_for_the_same_seed() -> None:
    arguments = ["gossip", "lab", "nine", "--runs", "50", "--json", "--seed"]
    one, again, other = (
        CliRunner().invoke(main, [*arguments, seed]).stdout for seed in ("4", "4", "5")
    )
    assert one == again != other
    rows = [json.loads(line) for line in one.splitlines()]
    assert rows[0] == {
        "lab": "nine", "what": "flooding", "messages": 28.0, "reached": 9.0, "share_of_runs": 1.0
    }  # fmt: skip


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    run = CliRunner().invoke
    result = run(main, ["gossip", "lab", "nines"])
    assert result.exit_code == 2
    nowhere = str(tmp_path / "no" / "x.png")
    result = run(main, ["gossip", "lab", "nine", "--runs", "9", "--plot", nowhere])
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    result = run(main, ["gossip", "lab", "policies", "--nodes", "20", "--plot", nowhere])
    assert result.output.endswith("Error: there is nothing to draw in these labs\n")


def test_a_node_is_not_started_by_mistake(tmp_path: Path) -> None:
    short = tmp_path / "secret"
    short.write_text("short")
    for arguments, problem in (
        (["--host", "192.0.2.1"], "without --secret-file"),
        (["--insecure", "--host", "192.0.2.1"], "192.0.2.1"),  # It is not ours.
        (["--insecure", "--host", "0.0.0.0"], "an address at which they reach it"),
        (["--secret-file", str(short)], "at least 16 bytes"),
        (["--join", "nowhere"], "not of the form HOST:PORT"),
        (["--fact", "=x"], "a fact is KEY=VALUE"),
    ):
        result = CliRunner().invoke(main, ["gossip", "node", *arguments])
        assert result.exit_code == 1, result.output
        assert problem in result.output
        assert "Traceback" not in result.output


def test_help_names_every_lab() -> None:
    text = CliRunner().invoke(main, ["gossip", "lab", "--help"]).output
    assert all(name in text for name in LABS)
