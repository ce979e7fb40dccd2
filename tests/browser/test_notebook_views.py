"""What notebooks show, in light and dark: the system's colours, and the themes of JupyterLab."""

from __future__ import annotations

import pyarrow as pa
import pytest

import lakebed
from lakebed.clock import random_token
from tests.browser.contrast import check_contrast, text_contrasts

# The backgrounds and texts of the themes of JupyterLab 4, and the rules of its output cells that meet tables.
LAB = {
    "light": {"background": "#ffffff", "text": "rgba(0, 0, 0, 0.87)", "even": "#f5f5f5", "hover": "#e3f2fd"},
    "dark": {"background": "#111111", "text": "#ffffff", "even": "#212121", "hover": "rgba(3, 169, 244, 0.2)"},
}


@pytest.fixture(scope="module")
def views():
    lake = lakebed.create(f"memory://{random_token()}")
    schema = lakebed.Schema({"k": "int64"}, {"at": "date32"}, {"v": "string"})
    table = lake.create_table("flights", schema, split_points=[100, 200])
    table.write(pa.table({"k": range(1_234), "at": pa.array([0] * 1_234, pa.date32()), "v": ["x"] * 1_234}))
    table.write(pa.table({"k": range(90), "at": pa.array([1] * 90, pa.date32()), "v": ["y"] * 90}))
    shown = (lake, table, table.schema, table.count(), table.explain(5), table.verify(), lakebed.status(lake))
    return "".join(one._repr_html_() for one in (*shown, table.plot_partitions()))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_views_follow_the_colours_of_the_system(chromium, views, scheme):
    page = chromium.new_page(color_scheme=scheme)
    style = "<style>:root{color-scheme:light dark}</style>"
    page.set_content(f"<html lang=en><title>t</title>{style}<main>{views}</main>")
    black_on_white = page.evaluate("getComputedStyle(document.querySelector('.lakebed p')).color") == "rgb(0, 0, 0)"
    assert black_on_white == (scheme == "light")
    # What is behind the page is the browser's own colour, which no element has.
    canvas = {"light": "#ffffff", "dark": "#121212"}[scheme]
    page.add_style_tag(content=f"html {{ background: {canvas}; }}")
    check_contrast(page)
    page.close()


@pytest.mark.parametrize("system", ["light", "dark"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_views_follow_the_theme_of_jupyterlab_not_the_system(chromium, views, theme, system):
    lab = LAB[theme]
    page = chromium.new_page(color_scheme=system)
    page.set_content(
        f"""<html lang=en><title>t</title><style>
        body {{ background: {lab["background"]}; color: {lab["text"]}; }}
        .jp-RenderedHTMLCommon {{ color: {lab["text"]}; }}
        .jp-RenderedHTMLCommon tbody tr:nth-child(even) {{ background: {lab["even"]}; }}
        .jp-RenderedHTMLCommon tbody tr:hover {{ background: {lab["hover"]}; }}
        </style><body data-jp-theme-light="{str(theme == "light").lower()}">
        <main class=jp-RenderedHTMLCommon>{views}</main>"""
    )
    check_contrast(page)
    page.close()


def test_a_view_that_cannot_be_read_is_found(chromium, views):
    page = chromium.new_page(color_scheme="dark")
    page.set_content(f"<body style='background:#111;color:#333'>{views}")
    assert min(text_contrasts(page).values()) < 4.5
    page.close()
