"""The alert rules and the dashboard name metrics that a service publishes, and each alert has cases and a runbook."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from lakebed.server.monitoring.definitions import METRICS, PREFIX, MetricKind
from scripts import write_dashboard

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "prometheus"
RULES = FOLDER / "lakebed.rules.yml"
CASES = FOLDER / "lakebed.rules.test.yml"
PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not installed")

NOT_OURS = {"up", "process_resident_memory_bytes", "process_cpu_seconds_total"}
FUNCTIONS = {
    "sum",
    "max",
    "rate",
    "increase",
    "by",
    "and",
    "or",
    "on",
    "unless",
    "absent",
    "time",
    "histogram_quantile",
}
ALWAYS = {"le", "job", "instance"}


def rules():
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return group["rules"]


def queries():
    return [
        (panel["title"], target["expr"])
        for panel in json.loads(write_dashboard.DASHBOARD.read_text("utf-8"))["panels"]
        for target in panel.get("targets", ())
    ]


BY_NAME = {metric.name: metric for metric in METRICS}


def wrong_names(expression):
    """What an expression names that no service publishes: metrics, parts of histograms, labels of a metric."""
    plain = re.sub(r"\[[^\]]*\]", "", expression)
    grouped = {label for found in re.findall(r"\b(?:by|on) \(([^)]*)\)", plain) for label in found.split(", ")}
    plain = re.sub(r"\b(?:by|on) \([^)]*\)", "", plain)
    labels = set(ALWAYS)
    for name, selector in re.findall(r"(?<!\w)([a-z_]+)(?:\{([^}]*)\})?", re.sub(r'"[^"]*"', '""', plain)):
        if name in FUNCTIONS | NOT_OURS:
            continue
        base = re.sub(r"_(bucket|sum|count)$", "", name.removeprefix(PREFIX))
        metric = BY_NAME.get(name.removeprefix(PREFIX), BY_NAME.get(base))
        if metric is None or not name.startswith(PREFIX):
            yield f"no metric {name}"
            continue
        if (metric.kind is MetricKind.HISTOGRAM) != (metric.name != name.removeprefix(PREFIX)):
            yield f"{name} is not a series of a {metric.kind.value}"
        labels |= set(metric.labels)
        for label in re.findall(r"([a-z_]+)(?:=~|!~|!=|=)", selector):
            if label not in ALWAYS | set(metric.labels):
                yield f"{name} has no label {label}"
    yield from (f"no label {label} to group by" for label in grouped - labels - {""})


@pytest.mark.parametrize(
    ("expression", "wrong"),
    [
        ("max by (table) (lakebed_table_rows)", []),
        ("lakebed_table_row", ["no metric lakebed_table_row"]),
        ('lakebed_table_rows{tabel="t"}', ["lakebed_table_rows has no label tabel"]),
        ("sum by (kind) (lakebed_table_rows)", ["no label kind to group by"]),
        ("rate(lakebed_read_seconds[5m])", ["lakebed_read_seconds is not a series of a histogram"]),
        ("rate(lakebed_read_rows_total_count[5m])", ["lakebed_read_rows_total_count is not a series of a counter"]),
    ],
)
def test_a_wrong_name_is_found(expression, wrong):
    assert list(wrong_names(expression)) == wrong


def test_alerts_name_metrics_that_are_published():
    assert not [(rule["alert"], wrong) for rule in rules() for wrong in wrong_names(rule["expr"])]


def test_the_dashboard_names_metrics_that_are_published():
    assert len(queries()) > 30
    assert not [(title, wrong) for title, expr in queries() for wrong in wrong_names(expr)]


def test_the_dashboard_is_the_one_that_the_script_writes():
    text = write_dashboard.DASHBOARD.read_text("utf-8")
    assert text == write_dashboard.text(), "run: python scripts/write_dashboard.py"
    panels = json.loads(text)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    # No two graphs overlap.
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_each_alert_says_what_it_is_and_how_bad():
    for rule in rules():
        assert re.fullmatch(r"Lakebed[A-Za-z]+", rule["alert"])
        assert rule["labels"]["severity"] in ("info", "warning", "critical")
        assert rule["for"]
        assert set(rule["annotations"]) == {"summary", "description", "runbook"}


def test_each_alert_has_a_case_in_which_it_fires_and_one_in_which_it_does_not():
    tests = yaml.safe_load(CASES.read_text("utf-8"))["tests"]
    cases = [(case["alertname"], bool(case["exp_alerts"])) for test in tests for case in test["alert_rule_test"]]
    assert sorted(cases) == sorted((rule["alert"], fires) for rule in rules() for fires in (False, True))


@needs_promtool
def test_promtool_accepts_the_rules_and_their_cases():
    for command in (["check", "rules", RULES.name], ["test", "rules", CASES.name]):
        ran = subprocess.run([PROMTOOL, *command], cwd=FOLDER, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout + ran.stderr


def test_each_alert_has_its_part_of_the_runbook_and_links_to_it():
    page = (ROOT / "docs" / "operations.md").read_text("utf-8").partition("## Runbook")[2]
    headings = re.findall(r"^### (\w+)$", page, re.MULTILINE)
    assert headings == [rule["alert"] for rule in rules()]
    for rule in rules():
        assert rule["annotations"]["runbook"] == f"docs/operations.md#{rule['alert'].lower()}"
