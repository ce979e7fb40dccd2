"""Every page in a real browser: it works by mouse and by keys, with and without scripts, and is accessible."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

SQL = "SELECT origin, count(*) AS flights, avg(dep_delay) AS delay, NULL AS none FROM flights GROUP BY origin"

PAGES = {
    "overview": "/",
    "table": "/tables/flights",
    "sensors": "/tables/sensors",
    "files": "/tables/flights?from=" + b"N14228\x00\x01".hex() + "&to=" + b"N258JB\x00\x01".hex(),
    "jobs": "/jobs",
    "key": "/query?kind=key&table=flights&low.tailnum=N14228&explain=true&run=true",
    "range": "/query?kind=range&table=flights",
    "sql": f"/query?kind=sql&sql={quote(SQL)}&run=true",
    "log": "/log",
    "table log": "/tables/flights/log",
    "error": "/tables/nothing",
}

WIDE = {"width": 1280, "height": 800}


@pytest.fixture
def page(chromium: Browser, served: str) -> Iterator[Page]:
    """A page that fails the test for any error of a script, or anything that the policy of the pages blocks."""
    context = chromium.new_context(base_url=served, viewport=WIDE)
    page = context.new_page()
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("console", lambda said: found.append(said.text) if said.type == "error" else None)
    yield page
    context.close()
    assert not [text for text in found if "status of 40" not in text and "ERR_INTERNET_DISCONNECTED" not in text]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_no_violation(page: Page, name: str, scheme: str) -> None:
    page.emulate_media(color_scheme=scheme)
    page.goto(PAGES[name])
    results = Axe().run(page)
    assert results.violations_count == 0, results.generate_report()


@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_a_name_and_one_heading(page: Page, name: str) -> None:
    page.goto(PAGES[name])
    assert page.title().endswith("Lakebed")
    assert page.locator("h1").count() == 1


def test_a_page_says_that_its_service_does_not_answer(page: Page) -> None:
    page.goto("/")
    expect(page.locator("#stale")).to_have_count(0)
    page.context.set_offline(True)
    expect(page.locator("#stale")).to_contain_text("The service does not answer", timeout=30_000)
    assert Axe().run(page).violations_count == 0
    page.context.set_offline(False)
    expect(page.locator("#stale")).to_have_count(0, timeout=30_000)
    page.goto("/tables/flights")
    page.route("**/tables/flights", lambda route: route.fulfill(status=303, headers={"location": "/login"}))
    expect(page.locator("#stale")).to_contain_text("reload the page to sign in", timeout=30_000)


def test_keys_alone_lead_from_the_overview_to_the_files_of_a_partition(page: Page) -> None:
    page.goto("/")
    page.keyboard.press("Tab")
    expect(page.get_by_text("Skip to content")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.press("/")
    expect(page.get_by_label("Filter tables by name")).to_be_focused()
    page.keyboard.type("fli")
    expect(page.locator("#list tbody tr")).to_have_count(1)
    for _ in range(30):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "flights":
            break
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/tables/flights$"))
    cells = page.locator("[data-icicle] svg a")
    cells.first.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(cells.nth(2)).to_be_focused()
    expect(page.locator("[data-about]")).to_contain_text("partition")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("from="))
    expect(page.get_by_role("heading", name="Files of partition")).to_be_visible()


def test_the_picture_of_many_partitions_is_one_stop_of_the_tab_key(page: Page) -> None:
    page.goto("/tables/sensors")
    cells = page.locator("[data-icicle] svg a")
    assert 100 < cells.count() < 400
    assert page.locator('[data-icicle] svg a[tabindex="0"]').count() == 1
    cells.nth(1).click()
    page.wait_for_url(re.compile("from=|to="))
    assert page.get_by_text("zoom out").is_visible()


def test_the_colour_switch_is_kept(page: Page) -> None:
    page.emulate_media(color_scheme="light")
    page.goto("/")
    background = "getComputedStyle(document.body).backgroundColor"
    light = page.evaluate(background)
    switch = page.get_by_role("button", name="Colours")
    switch.click()
    switch.click()
    expect(switch).to_have_attribute("aria-label", "Colours: dark")
    dark = page.evaluate(background)
    assert dark != light
    page.goto("/jobs")
    assert page.evaluate(background) == dark


def test_new_commits_appear_without_a_reload(page: Page, served: str) -> None:
    import lakebed

    page.goto("/tables/events_archive/log")
    before = page.locator("tbody tr").count()
    url = page.evaluate("fetch('/index.json').then(answer => answer.json()).then(found => found.instance)")
    lakebed.open(url).table("events_archive").set(split_rows=1_000 + before)
    expect(page.locator("tbody tr")).to_have_count(before + 1, timeout=15_000)


def test_a_statement_runs_by_keys_and_its_rows_are_downloaded(page: Page) -> None:
    page.goto("/query?kind=sql")
    page.get_by_label("Statement").fill("SELECT count(*) AS n FROM flights")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".result td")).to_have_count(1, timeout=30_000)
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert download.value.suggested_filename == "rows.csv"


def test_settings_and_switches_are_changed_by_forms(page: Page) -> None:
    page.goto("/tables/events_archive")
    page.get_by_label("split_bytes").fill("123456")
    page.get_by_role("button", name="Save settings").click()
    expect(page.get_by_label("split_bytes")).to_have_value("123456")
    page.get_by_role("button", name="Pause compaction").click()
    expect(page.get_by_role("button", name="Resume compaction")).to_be_visible()
    page.get_by_role("button", name="Resume compaction").click()
    expect(page.get_by_role("button", name="Pause compaction")).to_be_visible()


def test_a_form_of_another_page_changes_nothing(page: Page, served: str) -> None:
    """As another site would: a page of another origin that sends the form."""
    action = f"{served}/tables/events_archive/switch"
    page.goto("about:blank")
    page.set_content(f'<form method="post" action="{action}"><input name="action" value="online"></form>')
    with page.expect_navigation() as navigation:
        page.evaluate("document.forms[0].submit()")
    assert navigation.value.status == 403


def test_all_works_without_scripts(chromium: Browser, served: str) -> None:
    context = chromium.new_context(base_url=served, viewport=WIDE, java_script_enabled=False)
    page = context.new_page()
    page.goto("/")
    page.get_by_label("Filter tables by name").fill("sens")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("q=sens"))
    page.get_by_role("link", name="sensors").click()
    page.locator("[data-icicle] svg a").nth(1).click()
    page.wait_for_url(re.compile("from=|to="))
    page.goto("/query?table=flights")
    page.get_by_label("tailnum").fill("N14228")
    page.get_by_role("button", name="Run").click()
    expect(page.get_by_role("region", name="rows")).to_be_visible()
    context.close()
