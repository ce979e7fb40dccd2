"""The first hour in a notebook: Jupyter and the built wheel, the notebook of the examples, and what a browser shows."""

from __future__ import annotations

import re

import pytest

from tests import jupyter
from tests.browser.contrast import check_contrast
from tests.walks.conftest import ROOT, Environment


@pytest.fixture(scope="module")
def environment(installed, tmp_path_factory):
    return Environment(installed(others=jupyter.PACKAGES), tmp_path_factory.mktemp("notebook"))


@pytest.fixture(scope="module")
def notebook(environment):
    return jupyter.run_notebook(environment.run, ROOT / "examples" / "notebook.ipynb", environment.work)


def test_every_cell_of_the_notebook_runs_and_shows_itself(notebook):
    table, lake, rows, explained, warmest, older, count, picture = jupyter.shown(notebook)
    assert "12,500" in table
    assert len(re.findall("<title>partition", table)) == 5
    assert ("readings" in lake, "12,500" in lake) == (True, True)
    assert "celsius" in rows
    assert "Rows returned" in explained
    assert warmest.count("<td>18.0</td>") == 3
    assert "10,000" in older
    assert "12,500" in count
    assert picture.startswith("<svg")


@pytest.mark.parametrize("theme", jupyter.THEMES)
def test_what_it_shows_can_be_read_in_the_themes_of_jupyterlab(environment, notebook, chromium, theme):
    """The page has the styles of JupyterLab, and the system the other colours than the theme."""
    path = jupyter.page_of(environment.run, environment.work, theme)
    page = chromium.new_page(color_scheme={"light": "dark", "dark": "light"}[theme])
    # Scripts of the page come from other hosts.
    page.route(re.compile("^https?:"), lambda route: route.abort())
    page.goto(path.as_uri())
    assert page.locator("body").get_attribute("data-jp-theme-light") == str(theme == "light").lower()
    check_contrast(page)
    page.close()
