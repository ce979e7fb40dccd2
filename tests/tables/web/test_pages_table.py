"""The page of a table, and its forms."""

from __future__ import annotations

import re

import pyarrow as pa
import pytest
from litestar.testing import TestClient

import lakebed
from lakebed.server.security.principal import Permission, Principal, Role
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app
from tests.tables.web.conftest import BROWSER
from tests.waiting import until

HERE = {"sec-fetch-site": "same-origin"}


def test_page_of_a_table_shows_all_of_it(browser, stations):
    stations.tag("first")
    page = browser.get("/tables/stations").text
    for text in ("reading", "row key", "first", "add files", "split_rows", "Pause", "6", "KeepAll"):
        assert text in page
    twin = browser.get("/tables/stations.json").json()
    size = twin["size"]
    assert (size["rows"], size["partitions"], size["files"]) == (6, 3, 4)
    assert [cell["cell"]["rows"] for cell in twin["key_space"]["cells"]] == [2, 4, 0]
    assert [field["role"] for field in twin["fields"]] == ["row key", "sort key", ""]
    assert twin["tags"] == {"first": 3}


def test_a_click_on_a_cell_shows_its_files(browser, stations):
    cells = browser.get("/tables/stations.json").json()["key_space"]["cells"]
    part = {"from": cells[1]["low_hex"], "to": cells[1]["high_hex"]}
    space = browser.get("/tables/stations.json", params=part).json()["key_space"]
    assert space["whole"]["partition"] == 2
    assert [(file["rows"], file["low"], file["high"]) for file in space["files"]] == [(2, "alpha", "omega")] * 2
    assert "Files of partition 2" in browser.get("/tables/stations", params=part).text


def test_parents_and_files_without_references_are_shown(lake, browser, stations):
    assert "Made of partition" not in browser.get("/tables/stations").text
    pipeline = lakebed.Pipeline(lake, launcher="this-thread")
    files, ids = stations.state().referenced(), stations.state().partitions.ids
    stations.set(join_share=0.5)
    pipeline.compact(stations, strategy="full")
    pipeline.join_partitions(stations)
    twin = browser.get("/tables/stations.json").json()
    assert twin["unreferenced"] == {"files": len(files), "size_bytes": sum(one.size_bytes for one in files.values())}
    assert twin["key_space"]["parents"] == list(ids)
    assert f"Made of partitions {', '.join(map(str, ids))}" in browser.get("/tables/stations").text


def test_what_other_engines_read_is_shown(lake, browser, stations):
    assert browser.get("/tables/stations.json").json()["publication"] is None
    assert "Published version" not in browser.get("/tables/stations").text
    stations.set(publish="iceberg")
    with Service(lake) as service, TestClient(make_app(service)) as client:
        client.headers.update(BROWSER)

        def shown():
            return client.get("/tables/stations.json").json()["publication"]

        until(lambda: shown() == {"version": stations.version, "behind": 0, "error": None})
        assert re.search(r"Published version</dt><dd>[0-9]+ <small>the latest", client.get("/tables/stations").text)


def test_every_link_of_the_picture_leads_to_a_page(browser, stations):
    links = re.findall(r'href="(/tables/stations\?[^"#]*)#keys"', browser.get("/tables/stations").text)
    assert len(links) > 5
    for link in set(links):
        assert browser.get(link.replace("&amp;", "&")).status_code == 200


def test_a_single_partition_says_how_much_it_has_and_both_ends_once(lake, browser):
    table = lake.create_table("single", lakebed.Schema({"k": "int64"}))
    for size in (40_000, 1):
        table.write(pa.table({"k": range(size)}))
    page = browser.get("/tables/single").text
    picture = page[page.index("<figure") : page.index("</figure>")]
    assert ">40,001 rows · 2 files</text>" in picture
    ends = picture[picture.index('class="ends"') :]
    assert (ends.count("start"), ends.count("end<")) == (1, 1)
    # With one cell there is nothing to compare by width or colour.
    assert 'class="legend"' not in page
    assert "share=bytes" not in page


def test_a_key_stands_once_below_the_picture(browser, stations):
    ticks = browser.get("/tables/stations.json").json()["key_space"]["ticks"]
    shown = [one for one in ticks if one]
    assert shown[0] == "start"
    assert len(shown) == len(set(shown)) > 1


def test_rows_of_a_compaction_do_not_look_new(lake, browser, stations):
    lakebed.Pipeline(lake, launcher="this-thread").compact(stations, strategy="full")
    for path in ("/tables/stations", "/tables/stations/log", "/log"):
        page = browser.get(path).text
        assert sum(map(int, re.findall(r">([0-9]+) rewritten</td>", page))) == 6
        assert re.findall(r'data-of="rows"[^>]*>(\+[0-9]+)<', page) == ["+3", "+3"]
    # The chart of the overview counts them once as well.
    assert browser.get("/index.json?window=day").json()["charts"][1]["total"] == 6


def lineage(client, name, **headers):
    line = client.get(f"/tables/{name}.json", headers=headers).json()["lineage"]
    return {side: [(one["kind"], one["name"]) for one in line[side]] for side in ("sources", "targets")}


def test_what_a_table_feeds_and_is_fed_from_is_drawn(lake, browser, stations, tmp_path):
    assert "No view, index, copy or export" in browser.get("/tables/stations").text
    lake.create_view_table("recent", source="stations", select="SELECT id FROM source", row_key=["id"])
    lake.create_index("by_reading", table="stations", on=["reading"])
    pipeline = lakebed.Pipeline(lake, launcher="this-thread")
    pipeline.export("stations", str(tmp_path / "out"))
    # The copies of a table are looked for once a minute: by this service, not yet.
    place = f"file://{tmp_path / 'out'}"
    with TestClient(make_app(Service(lake, maintain=False))) as client:
        assert lineage(client, "stations") == {
            "sources": [],
            "targets": [("index", "by_reading"), ("view", "recent"), ("export", place)],
        }
        assert lineage(client, "recent") == {"sources": [("source", "stations")], "targets": []}
        assert lineage(client, "by_reading") == {"sources": [("source", "stations")], "targets": []}
        page = client.get("/tables/recent", headers=BROWSER).text
        assert "SELECT id FROM source" in page
        assert 'href="/tables/stations"' in page
        page = client.get("/tables/stations", headers=BROWSER).text
        assert "in files of this version" in page
        assert "unreferenced files" in page


def test_a_version_that_a_view_lacks_is_counted(lake, browser, stations):
    view = lake.create_view_table("recent", source="stations", select="SELECT id FROM source", row_key=["id"])
    lakebed.Pipeline(lake, launcher="this-thread").refresh(view)
    fed = stations.version
    for _ in range(2):
        stations.write(pa.table({"id": ["new"], "at": [9], "reading": [0.0]}))
    (found,) = browser.get("/tables/stations.json").json()["lineage"]["targets"]
    assert (found["version"], found["behind"]) == (fed, 2)


def test_lineage_names_no_table_and_no_place_that_one_may_not_see(lake, stations, tmp_path):
    lake.create_view_table("secret_view", source="stations", select="SELECT id FROM source", row_key=["id"])
    lakebed.Pipeline(lake, launcher="this-thread").export("stations", str(tmp_path / "secret_place"))

    class FakeAuthenticator:
        def authenticate(self, authorization: str | None) -> Principal:
            return Principal("ann", (Role("r", Permission.READ, frozenset({authorization or "stations"})),))

    with TestClient(make_app(Service(lake, maintain=False), FakeAuthenticator())) as client:
        for path in ("/tables/stations", "/tables/stations.json"):
            assert "secret" not in client.get(path, headers=BROWSER).text
        assert lineage(client, "stations")["targets"] == [("view", None), ("export", None)]
        seen = client.get("/tables/secret_view", headers=BROWSER | {"authorization": "secret_view"}).text
        assert "stations" not in seen


def test_a_view_whose_source_was_dropped_has_a_page(lake, browser, stations):
    lake.create_view_table("orphan", source="stations", select="SELECT id FROM source", row_key=["id"])
    lake.drop_table("stations")
    assert lineage(browser, "orphan") == {"sources": [("source", None)], "targets": []}
    assert browser.get("/tables/orphan").status_code == 200


def test_settings_have_units(browser, stations):
    stations.set(history_s="7d", split_bytes="4GiB")
    page = browser.get("/tables/stations").text
    assert 'name="history_s" value="7d"' in page
    assert 'name="split_bytes" value="4GiB"' in page
    assert 'placeholder="256 MiB"' in page
    form = dict(re.findall('<input id="[^"]*" name="([^"]*)" value="([^"]*)"', page))
    version = stations.version
    # What the page has is what it sends: nothing changes.
    answer = browser.post("/tables/stations/settings", data=form, headers=HERE, follow_redirects=False)
    assert (answer.status_code, stations.version) == (303, version)


@pytest.mark.parametrize("part", [{"from": "xyz"}, {"from": "62", "to": "61"}, {"to": ""}, {"share": "luck"}])
def test_a_part_that_is_none_is_refused(browser, stations, part):
    assert browser.get("/tables/stations", params=part).status_code in {400, 422}


def test_binary_and_strange_keys_are_shown_and_escaped(lake, browser):
    table = lake.create_table("odd", lakebed.Schema({"k": "binary", "t": "string"}), split_points=[(b"\x00\xff",)])
    keys = [b"\x00", b"\xff\xfe", b"<b>"]
    table.write(pa.table({"k": keys, "t": ["</script><script>", "\x00\n\u202e", "''"]}))
    cells = browser.get("/tables/odd.json").json()["key_space"]["cells"]
    page = browser.get("/tables/odd", params={"from": cells[1]["low_hex"]}).text
    assert "</script><script>" not in page
    assert "fffe" in page
    assert "\\u202e" in page


def test_sizes_over_time_are_replayed_from_the_log(browser, stations):
    browser.get("/tables/stations.json")
    sizes = browser.get("/tables/stations.json").json()["sizes"]
    assert [(size["version"], size["rows"]) for size in sizes] == [(1, 0), (2, 3), (3, 6)]


def test_a_table_that_is_not_there_is_a_page(browser):
    answer = browser.get("/tables/nothing")
    assert answer.status_code == 404
    assert "no table named" in answer.text


def test_a_form_changes_settings_and_resets_them(browser, lake, stations):
    answer = browser.post(
        "/tables/stations/settings", data={"split_rows": "77", "file_bytes": ""}, headers=HERE, follow_redirects=False
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/tables/stations#settings")
    assert stations.state().settings == {"split_rows": 77}
    version = stations.version
    browser.post("/tables/stations/settings", data={"split_rows": "77"}, headers=HERE)
    assert stations.state().version == version
    browser.post("/tables/stations/settings", data={"split_rows": ""}, headers=HERE)
    assert stations.state().settings == {}


def test_a_bad_setting_is_refused_with_the_reason(browser, stations):
    answer = browser.post("/tables/stations/settings", data={"split_rows": "many"}, headers=HERE)
    assert answer.status_code == 400
    assert "split_rows" in answer.text
    assert browser.post("/tables/stations/settings", data={"luck": "1"}, headers=HERE).status_code == 400


def test_switches_pause_resume_and_take_offline(browser, lake, stations):
    def press(**data: str) -> int:
        return browser.post("/tables/stations/switch", data=data, headers=HERE, follow_redirects=False).status_code

    assert press(action="pause", operation="compaction") == 303
    assert lake.paused("stations") == {"compaction"}
    assert "Resume compaction" in browser.get("/tables/stations").text
    assert press(action="resume", operation="compaction") == 303
    assert lake.paused("stations") == set()
    assert press(action="offline") == 303
    assert not lake.is_online("stations")
    assert press(action="burn") == 400
    assert press(action="pause", operation="luck") == 400


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "https://elsewhere.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site", "authorization": "Bearer x"},
    ],
)
def test_a_form_of_another_site_is_refused(browser, lake, stations, headers):
    for form in ("settings", "switch"):
        data = {"action": "offline"} if form == "switch" else {"split_rows": "5"}
        assert browser.post(f"/tables/stations/{form}", data=data, headers=headers).status_code == 403
    assert lake.is_online("stations")
    assert stations.state().settings == {}


@pytest.mark.parametrize("headers", [{"origin": "http://testserver.local"}, {"authorization": "Bearer x"}])
def test_a_form_of_this_service_or_of_a_program_is_taken(browser, stations, headers):
    answer = browser.post("/tables/stations/settings", data={}, headers=headers, follow_redirects=False)
    assert answer.status_code == 303


def test_only_admins_see_and_use_the_forms(lake, stations):
    roles = {"read": Role("r", Permission.READ), "part": Role("p", Permission.READ, where="id > 'm'")}

    class FakeAuthenticator:
        def authenticate(self, authorization: str | None) -> Principal:
            return Principal("ann", (roles[authorization or "read"],))

    with TestClient(make_app(Service(lake, maintain=False), FakeAuthenticator())) as client:
        page = client.get("/tables/stations", headers=BROWSER).text
        assert "<form" not in page
        assert "split_rows" in page
        for form in ("settings", "switch"):
            assert client.post(f"/tables/stations/{form}", data={"x": "1"}, headers=HERE).status_code == 403
        assert client.get("/tables/stations", headers={"authorization": "part"}).status_code == 403
