"""Every page at every width, with long names, with one partition, with 10,000, and without tables: nothing is cut."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page

from tests.browser.lake import LONG
from tests.browser.layout import label_contrasts, misfits

WIDTHS = (320, 390, 768, 1280)

KEY = "0" + "k" * 199

STRANGE = {
    "overview": "/",
    "filtered": f"/?q={LONG}&health=ok",
    "table": f"/tables/{LONG}",
    "view": f"/tables/view_of_{LONG}",
    "index": f"/tables/index_of_{LONG}",
    "one row": "/tables/one",
    "no row": "/tables/none",
    "jobs": "/jobs",
    "failed": "/jobs?show=failed&window=week",
    "log": "/log",
    "table log": f"/tables/{LONG}/log",
    "choose": "/query",
    "key": f"/query?table={LONG}&key={KEY}&explain=true",
    "no key": f"/query?table={LONG}&key={KEY}x",
    "range": f"/query?kind=range&table={LONG}&run=true&rows=5",
    "sql": "/query?kind=sql",
    "rows": f"/query?kind=sql&sql={quote(f'SELECT * FROM {LONG} LIMIT 3')}&run=true",
    "wrong": f"/query?kind=sql&sql={quote(f'SELECT {LONG} FROM nothing_{LONG}')}&run=true",
    "error": f"/tables/no_{LONG}",
    "login": f"/login?next=/tables/{LONG}",
}
EMPTY = {"overview": "/", "jobs": "/jobs", "log": "/log", "choose": "/query", "sql": "/query?kind=sql"}
LARGE = {
    "overview": "/",
    "table": "/tables/flights",
    "sensors": "/tables/sensors",
    "part": "/tables/sensors?share=partitions&colour=age",
    "files": "/tables/flights?from=" + b"N14228\x00\x01".hex() + "&to=" + b"N258JB\x00\x01".hex(),
    "jobs": "/jobs",
    "log": "/log",
}
PAGES = [
    *(("strange", name, path) for name, path in STRANGE.items()),
    *(("empty", name, path) for name, path in EMPTY.items()),
    *(("served", name, path) for name, path in LARGE.items()),
]


@pytest.fixture
def page(chromium: Browser, request: pytest.FixtureRequest, service: str) -> Iterator[Page]:
    """A page of one of the services, by its fixture."""
    context = chromium.new_context(base_url=request.getfixturevalue(service))
    yield context.new_page()
    context.close()


@pytest.mark.parametrize(("service", "name", "path"), PAGES, ids=[f"{service} {name}" for service, name, _ in PAGES])
def test_a_page_fits_every_width(page: Page, service: str, name: str, path: str) -> None:
    page.goto(path)
    assert page.locator("h1").count() == 1
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 844})
        assert not misfits(page), (name, width)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert not [(text, ratio) for text, ratio in label_contrasts(page) if ratio < 4.5]
    page.set_viewport_size({"width": WIDTHS[0], "height": 844})
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


@pytest.mark.parametrize("service", ["strange"])
def test_what_does_not_fit_is_found(page: Page, service: str) -> None:
    """The test above can fail: by a wide page, a button off the edge, a cut text, a wide label, a pale one."""
    page.set_viewport_size({"width": 390, "height": 844})
    breaks = {
        "the page is": "document.querySelector('h1').style.whiteSpace = 'nowrap'",
        "outside of the window": "document.querySelector('button.primary').style.marginLeft = '360px'",
        "its text is cut": "document.querySelector('button.primary').style.width = '20px'",
        "cut by": "document.querySelector('.grid button').style.marginLeft = '340px'",
        "wider than its cell": "document.querySelector('.label text').style.fontSize = '60px'",
    }
    for said, script in breaks.items():
        page.goto(f"/tables/{LONG}")
        assert not misfits(page)
        page.evaluate(script)
        assert [one for one in misfits(page) if said in one], said
    page.goto("/tables/one")
    ((text, before),) = label_contrasts(page)
    page.evaluate("document.querySelector('.label text').style.fill = '#93bfe3'")
    assert text == "1 row \u00b7 1 file"
    assert label_contrasts(page)[0][1] < 4.5 < before


@pytest.mark.parametrize("service", ["served", "strange"])
def test_health_comes_first_on_a_phone(page: Page, service: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/")
    top = "selector => document.querySelector(selector).getBoundingClientRect().top"
    assert page.evaluate(top, "[aria-label='Tables by health']") < page.evaluate(top, ".stats")
    for row in page.locator("#list tbody tr").all():
        # Without scrolling sideways: the first thing of each table.
        assert row.locator("td, th").first.locator(".badge").is_visible()
    table = page.locator("#list tbody a").first
    table.click()
    assert page.evaluate(top, "#health") < page.evaluate(top, ".stats")
