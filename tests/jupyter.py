"""Notebooks in an environment with Jupyter: run in a kernel, and made a page with the styles of JupyterLab."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PACKAGES = ("ipykernel", "nbconvert", "pandas")
"""What a user of notebooks has beside Lakebed. nbconvert runs notebooks by nbclient, and has JupyterLab's styles."""

THEMES = ("light", "dark")


def run_notebook(run: Callable[..., str], notebook: Path, to: Path) -> dict[str, Any]:
    """Run all cells in a new kernel, in the folder ``to``; returns the notebook with its outputs.

    ``run`` runs a program of the environment. It fails if a cell raises.
    """
    words = ["--to", "notebook", "--execute", "--output", "run.ipynb", "--output-dir", str(to)]
    run("jupyter", "nbconvert", *words, str(notebook))
    return json.loads((to / "run.ipynb").read_text("utf-8"))


def page_of(run: Callable[..., str], to: Path, theme: str) -> Path:
    """The notebook that :func:`run_notebook` has run as a page in a theme of JupyterLab."""
    words = ["--to", "html", "--template", "lab", "--theme", theme, "--output", f"{theme}.html"]
    run("jupyter", "nbconvert", *words, str(to / "run.ipynb"))
    return to / f"{theme}.html"


def shown(notebook: dict[str, Any]) -> list[str]:
    """The HTML that cells showed, in order."""
    outputs = [one for cell in notebook["cells"] for one in cell.get("outputs", ())]
    return ["".join(one["data"]["text/html"]) for one in outputs if "text/html" in one.get("data", {})]
