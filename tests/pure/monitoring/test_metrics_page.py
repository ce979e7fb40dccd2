"""The list of metrics, the code that measures and docs/metrics.md say the same."""

from __future__ import annotations

import re
from pathlib import Path

from lakebed.server.monitoring.definitions import MEASURED, METRICS, MetricKind
from scripts.write_metrics import PAGE, page

SOURCE = Path(__file__).parents[3] / "src" / "lakebed"


def measured_in_source():
    """The names that the source reports, those of spans with their endings."""
    found = set()
    for path in SOURCE.rglob("*.py"):
        if path.name == "telemetry.py":
            continue
        text = path.read_text("utf-8")
        found |= set(re.findall(r'telemetry\.measure\(\s*"(\w+)"', text))
        for name in re.findall(r'(?:telemetry\.span|telemetry\.Span|sink\.begun)\(\s*"(\w+)"', text):
            found.add(f"{name}_seconds")
    return found


def test_everything_that_is_measured_is_published_and_nothing_else_is_announced():
    announced = {metric.name for metric in MEASURED}
    assert announced - measured_in_source() <= {f"{name}_errors_total" for name in ("read", "write", "gc")}
    assert measured_in_source() <= announced


def test_names_follow_the_conventions_of_prometheus():
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert re.fullmatch(r"[a-z][a-z0-9_]*", metric.name)
        assert metric.name.endswith("_total") == (metric.kind is MetricKind.COUNTER)
        assert bool(metric.buckets) == (metric.kind is MetricKind.HISTOGRAM)
        assert list(metric.buckets) == sorted(set(metric.buckets))
        assert metric.help.endswith(".")
        assert not re.search(r"_(ms|us|minutes|hours|kb|mb|percent)(_|$)", metric.name)


def test_the_page_has_the_tables_of_the_list():
    text = PAGE.read_text("utf-8")
    assert page(text) == text, "run: python scripts/write_metrics.py"
    assert all(f"`{metric.full_name}`" in text for metric in METRICS)
