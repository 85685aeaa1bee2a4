"""Questions to Prometheus, for run.sh: exit code 0 means yes.

ask.py URL some EXPRESSION       whether there is such a sample
ask.py URL panels DASHBOARD      whether each query of a Grafana dashboard finds something
ask.py URL rules                 whether every rule was evaluated, without an error
ask.py URL quiet                 whether no alert fires, or is about to
ask.py URL worst                 print how long the longest scrape took
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

# What a dashboard leaves open, as Grafana would fill it in.
VARIABLES = {"$__rate_interval": "10s", "$__range": "1m", "$instance": ".*"}

# Alerts that are pending where a machine is busy, or has only just been looked at.
OF_MACHINE = ("EntrepotDiskFillsUp", "EntrepotLoopLate", "EntrepotSlowCommits")


def get(url: str, path: str, **query: str) -> Any:
    with urlopen(f"{url}/api/v1/{path}?{urlencode(query)}", timeout=30) as answer:
        said = json.load(answer)
    assert said["status"] == "success", said
    return said["data"]


def found(url: str, expression: str) -> list[Any]:
    result: list[Any] = get(url, "query", query=expression)["result"]
    return result


def expressions(dashboard: str) -> Iterator[tuple[str, str]]:
    for panel in json.loads(Path(dashboard).read_text("utf-8"))["panels"]:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            for name, value in VARIABLES.items():
                expression = expression.replace(name, value)
            yield panel["title"], expression


def show_some(url: str, expression: str) -> bool:
    return bool(found(url, expression))


def all_panels(url: str, dashboard: str) -> bool:
    empty = [row for row in expressions(dashboard) if not found(url, row[1])]
    for title, expression in empty:
        print(f"{title}: nothing for {expression}")
    return not empty


def all_rules(url: str) -> bool:
    rules = [rule for group in get(url, "rules")["groups"] for rule in group["rules"]]
    bad = [rule for rule in rules if rule["health"] != "ok"]
    for rule in bad:
        print(rule["name"], rule["health"], rule.get("lastError"))
    return bool(rules) and not bad


def is_quiet(url: str) -> bool:
    """An alert that is pending counts, too, unless it is the machine's."""
    alerts = [
        alert
        for alert in get(url, "alerts")["alerts"]
        if alert["state"] == "firing" or alert["labels"]["alertname"] not in OF_MACHINE
    ]
    for alert in alerts:
        print(alert["labels"], alert["state"])
    return not alerts


def show_worst(url: str) -> bool:
    for name, expression in (
        ("longest scrape, in s", 'max_over_time(scrape_duration_seconds{job="entrepot"}[10m])'),
        ("samples", 'max_over_time(scrape_samples_scraped{job="entrepot"}[10m])'),
    ):
        print(f"      {name}: {found(url, expression)[0]['value'][1]}")
    return True


QUESTIONS = {
    "some": show_some,
    "panels": all_panels,
    "rules": all_rules,
    "quiet": is_quiet,
    "worst": show_worst,
}

if __name__ == "__main__":
    address, question, *rest = sys.argv[1:]
    sys.exit(not QUESTIONS[question](address, *rest))
