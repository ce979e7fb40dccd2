"""The plots: lookups as commits arrive, and commits as they accumulate. Runs in an environment of its own.

python -m benchmarks.lookup_under_ingest.plot FIGURES.json OUT_WITHOUT_SUFFIX
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt

# Distinguishable without colours: each has its own marker.
STYLES = {
    "lakebed": ("#0b3c8c", "o"),
    "delta-rs": ("#e07b00", "s"),
    "pyiceberg": ("#3a8f3a", "^"),
    "lancedb": ("#b5302a", "v"),
    "ducklake": ("#c9a400", "D"),
    "pypaimon": ("#7d4ea8", "P"),
    "slatedb": ("#6b6b6b", "X"),
}


def draw(axes: Any, name: str, x: list[float], y: list[float]) -> None:
    colour, mark = STYLES[name]
    ours = name == "lakebed"
    axes.plot(
        x, y, label=name, color=colour, marker=mark, markersize=5 if ours else 4,
        linewidth=2.4 if ours else 1.3, zorder=3 if ours else 2, markevery=max(1, len(x) // 12),
    )  # fmt: skip


def picture(results: dict[str, Any], out: Path) -> None:
    sizes = results["sizes"]
    plt.rcParams.update({"font.size": 10, "svg.hashsalt": "lakebed"})
    figure, (lookups, commits) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    for name, figures in results["peers"].items():
        if curve := figures.get("ingest", {}).get("curve"):
            draw(lookups, name, [point["commits"] for point in curve], [point["p50_ms"] for point in curve])
        if means := figures.get("tiny", {}).get("means_ms"):
            draw(commits, name, [50 * at + 1 for at in range(len(means))], means)
    lookups.set(
        title="A key, looked up while random keys arrive (p50)",
        xlabel=f"commits of {sizes['rows']:,} random keys so far, nothing compacted",
        ylabel="milliseconds (log)",
        xscale="log",
        yscale="log",
    )
    commits.set(
        title="A commit of 10 rows, as commits add up (means of 50)",
        xlabel="commits so far",
        ylabel="milliseconds (log)",
        yscale="log",
    )
    lookups.set_xticks([ticks for ticks in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000) if ticks <= sizes["commits"]])
    for axes in (lookups, commits):
        axes.grid(visible=True, which="major", alpha=0.35)
        axes.grid(visible=True, which="minor", alpha=0.12)
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_minor_formatter("")
        axes.yaxis.set_major_formatter("{x:g}")
    handles, labels = lookups.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
    figure.savefig(out.with_suffix(".png"), dpi=130)
    figure.savefig(out.with_suffix(".svg"), metadata={"Date": None})


def main() -> int:
    source, out = sys.argv[1:]
    picture(json.loads(Path(source).read_text("utf-8")), Path(out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
