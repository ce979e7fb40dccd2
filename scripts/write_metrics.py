"""Writes the table of docs/metrics.md from the list of metrics: python scripts/write_metrics.py."""

from __future__ import annotations

from pathlib import Path

from lakebed.server.monitoring.definitions import FOLLOWER_GAUGES, MEASURED, SERVICE_GAUGES, TABLE_GAUGES

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "metrics.md"
SECTIONS = {
    "measured": MEASURED,
    "tables": TABLE_GAUGES,
    "followers": FOLLOWER_GAUGES,
    "service": SERVICE_GAUGES,
}


def page(text: str) -> str:
    """The page with the tables between its markers replaced."""
    for name, metrics in SECTIONS.items():
        begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise SystemExit(f"{PAGE} has no {begin!r} … {end!r}")
        lines = ["| metric | type | labels | meaning |", "|---|---|---|---|"]
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{metric.full_name}` | {metric.kind.value} | {labels} | {metric.help} |")
        text = f"{before}{begin}\n" + "\n".join(lines) + f"\n\n{end}{after}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text("utf-8")), "utf-8")
