"""A real Prometheus scrapes a real service, evaluates the alert rules, and one of them fires."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

import lakebed
from scripts.write_dashboard import dashboard
from tests.service.served import served
from tests.waiting import until

DEPLOY = Path(__file__).parents[2] / "deploy"
PROMETHEUS = shutil.which("prometheus")
needs_prometheus = pytest.mark.skipif(PROMETHEUS is None, reason="prometheus is not installed")

CONFIG = """
global: {{ scrape_interval: 250ms, evaluation_interval: 250ms }}
rule_files: [rules.yml]
scrape_configs:
  - job_name: lakebed
    static_configs: [{{ targets: ["{target}"] }}]
"""


@contextmanager
def prometheus(folder, target):
    """The URL of a Prometheus that scrapes the target and evaluates the rules, without their delays."""
    rules = (DEPLOY / "prometheus" / "lakebed.rules.yml").read_text("utf-8")
    (folder / "rules.yml").write_text(re.sub(r"^( +for:) .*$", r"\1 0s", rules, flags=re.MULTILINE), "utf-8")
    (folder / "prometheus.yml").write_text(CONFIG.format(target=target), "utf-8")
    log = folder / "log"
    with log.open("w") as said:
        process = subprocess.Popen(
            [
                PROMETHEUS,
                f"--config.file={folder / 'prometheus.yml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stderr=said,
            stdout=said,
        )
    try:
        yield "http://" + until(
            lambda: next(iter(re.findall(r"address=(127\.0\.0\.1:[1-9]\d*)", log.read_text())), None)
        )
    finally:
        process.terminate()
        process.wait(120)


def asked(url, path, **query):
    try:
        with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=120) as answer:
            return json.load(answer)["data"]
    except urllib.error.HTTPError as error:
        if error.code == 503:
            # It is not ready yet.
            return None
        raise AssertionError(f"{query}: {error.read().decode()}") from error


def values(url, expression):
    found = asked(url, "query", query=expression)
    return {one["metric"].get("table", ""): float(one["value"][1]) for one in found["result"]} if found else {}


def shown(expression):
    """An expression of the dashboard, as Grafana asks for it."""
    return expression.replace("$__rate_interval", "1m").replace("$table", ".*")


@needs_prometheus
def test_prometheus_scrapes_a_service_and_an_alert_fires(tmp_path):
    lake = tmp_path / "lake"
    table = lakebed.create(str(lake)).create_table("flights", lakebed.Schema({"k": "int64"}))
    table.write(pa.table({"k": pa.array(range(1000), pa.int64())}))
    with served(lake) as service, prometheus(tmp_path, service.url.removeprefix("http://")) as url:
        until(lambda: values(url, "up").get("") == 1)
        assert until(lambda: values(url, "lakebed_table_rows").get("flights")) == 1000

        rules = until(lambda: evaluated(url))
        assert not [one for one in rules if one["health"] != "ok"]
        assert "LakebedDown" not in firing(url)

        for panel in dashboard()["panels"]:
            for target in panel.get("targets", ()):
                assert asked(url, "query", query=shown(target["expr"]))["resultType"] == "vector"

        service.stop()
        alert = until(lambda: firing(url).get("LakebedDown"))
        assert alert["labels"]["severity"] == "critical"
        assert alert["annotations"]["runbook"].endswith("#lakebeddown")


def evaluated(url):
    rules = [one for group in asked(url, "rules")["groups"] for one in group["rules"]]
    return rules if rules and all(one["health"] != "unknown" for one in rules) else None


def firing(url):
    return {one["labels"]["alertname"]: one for one in asked(url, "alerts")["alerts"] if one["state"] == "firing"}
