"""The dashboard and the alerts of config/ speak of metrics that there are.

Which ones there are is what docs/reference/metrics.md lists, and a test of the page compares that
with the page. `compat/prometheus/run.sh` shows both to a real Prometheus.
"""

import json
import re
from pathlib import Path

import pytest
from prometheus_client import GC_COLLECTOR, PROCESS_COLLECTOR

ROOT = Path(__file__).parents[1]
DASHBOARD = ROOT / "config/grafana/entrepot.json"
FILES = (DASHBOARD, ROOT / "config/prometheus/alerts.yml")
_PARTS = ("_bucket", "_sum", "_count")


def known() -> set[str]:
    page = (ROOT / "docs/reference/metrics.md").read_text("utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| `entrepot_")]
    ours: dict[str, bool] = {}  # And whether it is a histogram.
    for row in rows:
        names, kind = row.split("|")[1:3]
        ours |= dict.fromkeys(re.findall(r"`(entrepot_\w+)", names), kind.strip() == "histogram")
    histograms = {name + part for name, is_one in ours.items() if is_one for part in _PARTS}
    libraries = {
        sample.name
        for collector in (GC_COLLECTOR, PROCESS_COLLECTOR)
        for metric in collector.collect()
        for sample in metric.samples
    }
    return {*ours} | histograms | libraries


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_metric_that_is_used_is_one(path: Path) -> None:
    used = set(re.findall(r"\b(?:entrepot|process|python)_\w+", path.read_text("utf-8")))
    assert len(used) > 10
    assert used <= known()


def test_the_dashboard_is_one_that_grafana_reads() -> None:
    board = json.loads(DASHBOARD.read_text("utf-8"))
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(numbers) == len(set(numbers))
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "${datasource}"
            assert all(target["expr"] for target in panel["targets"])
    assert [each["name"] for each in board["templating"]["list"]] == ["datasource", "instance"]
