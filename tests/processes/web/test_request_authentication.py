"""Authentication of requests: tokens, sessions of browsers, other sites, and what the audit log records."""

import base64
import html
import json
import random
import re
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest
from litestar.testing import TestClient

import lakebed
from lakebed import Schema, clock
from lakebed.server.security import stored
from lakebed.server.security.audit import AuditLog
from lakebed.server.security.authentication import BearerAuthenticator
from lakebed.server.security.principal import Permission
from lakebed.server.security.roles import Role
from lakebed.server.security.sessions import SESSION_S, SealedSessions
from lakebed.server.service.service import Service
from lakebed.server.web.app import make_app
from lakebed.server.web.request_authentication import COOKIE, FAILURES_MAX, Exposure
from tests.clocks import set_clock

HIDDEN = "hidden-note"
PAGE = {"accept": "text/html"}
HEALTH = ("/health", "/health/live", "/health/ready")


@pytest.fixture
def lake(lake):
    for name in ("t", "u"):
        table = lake.create_table(name, Schema({"k": "int64"}, values={"tenant": "string", "note": "string"}))
        table.write(pa.table({"k": [1, 2], "tenant": ["a", "b"], "note": ["mine", HIDDEN]}))
    part = Role("part", Permission.READ, frozenset({"t"}), where="tenant = 'a'", hidden=frozenset({"tenant"}))
    stored.create_role(lake.storage, part)
    return lake


@pytest.fixture
def tokens(lake):
    return {role: stored.create_token(lake.storage, f"{role}-user", [role])[1] for role in ("read", "admin", "part")}


@pytest.fixture
def log(tmp_path):
    return tmp_path / "audit.log"


@pytest.fixture
def client(lake, tokens, log):
    access = stored.AccessList(lake.storage)
    app = make_app(
        Service(lake, maintain=False),
        BearerAuthenticator(access),
        exposure=Exposure(origins=("https://app.example",), audit=AuditLog(str(log))),
    )
    with TestClient(app) as found:
        yield found
    access.close()


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


def test_every_route_but_a_few_needs_a_token(client, tokens):
    public = {"/health", "/health/live", "/health/ready", "/login", "/logout", "/static/{name:str}", "/metrics"}
    # Refuses everyone.
    public.add("/iceberg/v1/oauth/tokens")
    asked = 0
    for route in client.app.routes:
        path = route.path_format
        if route.path in public or path in public or path.startswith("/static/"):
            continue
        for method in route.methods - {"OPTIONS"}:
            filled = path.replace("{", "").replace("}", "")
            answer = client.request(method, filled)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"].startswith("Bearer")
            asked += 1
    assert asked > 20
    assert [client.get(path).status_code for path in HEALTH] == [200] * 3


@pytest.mark.parametrize(
    "header",
    ["", "Bearer", "Bearer ", "Basic YTpi", "Bearer lakebed_0", "Bearer " + "x" * 20_000, "Bearer a.b.c", "bearer é"],
)
def test_a_wrong_token_is_refused_and_not_repeated(client, header):
    answer = client.get("/v1/tables", headers={"authorization": header.encode("latin-1")})
    assert answer.status_code == 401
    assert "lakebed_0" not in answer.text


def test_a_role_reads_what_it_shows(client, tokens):
    rows = client.get("/v1/tables/t/scan", headers=bearer(tokens["part"]))
    assert [json.loads(line) for line in rows.text.splitlines()] == [{"k": 1, "note": "mine"}]
    answer = client.post("/v1/sql", json={"statement": "SELECT * FROM t"}, headers=bearer(tokens["part"]))
    assert HIDDEN not in answer.text
    assert "mine" in answer.text
    assert client.get("/v1/tables/u/scan", headers=bearer(tokens["part"])).status_code == 403
    assert "u" not in client.get("/v1/tables", headers=bearer(tokens["part"])).json()["tables"]


def test_a_role_that_sees_a_part_of_a_table_may_not_list_its_jobs(client, tokens):
    for path in ("/v1/jobs?table=t", "/v1/tables/t/requests"):
        assert client.get(path, headers=bearer(tokens["part"])).status_code == 403
        assert client.get(path, headers=bearer(tokens["read"])).status_code == 200


def test_no_get_shows_a_hidden_row_or_the_name_of_another_table(client, tokens):
    """Whatever routes there are, or will be."""
    asked = 0
    for route in client.app.routes:
        if "GET" not in route.methods or route.path == "/metrics":
            continue
        path = route.path_format
        for name in ("{table}", "{name}", "{table_id}"):
            path = path.replace(name, "t")
        for query in ("", "?key=2", "?where=k%3E0", "?depth=1", "?rows=9"):
            for accept in ("application/json", "text/html"):
                headers = bearer(tokens["part"]) | {"accept": accept}
                answer = client.get(path.replace("{", "").replace("}", "") + query, headers=headers)
                assert HIDDEN not in answer.text, path
                assert "tenant" not in answer.text, path
                asked += 1
    assert asked > 50


def test_a_browser_signs_in_with_a_token_and_out(client, tokens):
    answer = client.get("/", headers=PAGE, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2F")
    assert client.get("/login").status_code == 200
    wrong = client.post("/login", data={"token": "lakebed_wrong"})
    assert (wrong.status_code, COOKIE in wrong.cookies) == (401, False)
    assert "lakebed_wrong" not in wrong.text
    answer = client.post("/login", data={"token": tokens["read"], "next": "/tables/t"}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, "/tables/t")
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert tokens["read"] not in cookie
    page = client.get("/", headers=PAGE).text
    assert "read-user" in page
    assert "Sign out" in page
    assert client.get("/v1/tables").status_code == 200
    client.post("/logout", headers={"sec-fetch-site": "same-origin"})
    assert "Sign in" in client.get("/", headers=PAGE).text


PLACES = ["/", "/jobs?show=failed&window=day", "/log", "/tables/t", "/tables/t/log?before=2", "/query?table=t&key=1"]


@pytest.mark.parametrize(
    "place", [*PLACES, "/query?kind=sql&sql=SELECT%20%27%C3%A9%26%3D%27", "/nothing", "/tables/%2F"]
)
def test_signing_in_leads_back_to_where_one_was(client, tokens, place):
    asked = client.get(place, headers=PAGE, follow_redirects=False)
    if asked.status_code == 404:
        # Nothing is there, which needs no principal to be said.
        return
    form = client.get(asked.headers["location"], headers=PAGE)
    assert form.status_code == 200
    following = html.unescape(re.search('name="next" value="([^"]*)"', form.text)[1])
    signed = client.post("/login", data={"token": tokens["read"], "next": following}, follow_redirects=False)
    back = signed.headers["location"]
    assert (urlsplit(back).path, parse_qs(urlsplit(back).query)) == (
        urlsplit(place).path,
        parse_qs(urlsplit(place).query),
    )
    assert client.get(back, headers=PAGE).status_code == 200


def test_a_program_without_a_token_is_answered_and_led_nowhere(client):
    for path in ("/", "/index.json", "/query", "/v1/tables"):
        assert client.get(path, headers={"accept": "*/*"}, follow_redirects=False).status_code == 401
    for path in ("/index.json", "/v1/tables", "/iceberg/v1/config"):
        assert client.get(path, headers=PAGE, follow_redirects=False).status_code == 401


@pytest.mark.parametrize(
    ("referer", "back"),
    [
        ("http://testserver.local/tables/t?share=bytes", "/tables/t?share=bytes"),
        ("http://evil.example/tables/t", "/"),
        ("http://testserver.local//evil.example", "/"),
        ("", "/"),
    ],
)
def test_a_form_that_is_sent_after_the_session_leads_back_to_its_page(client, referer, back):
    headers = PAGE | {"sec-fetch-site": "same-origin", "referer": referer}
    answer = client.post("/tables/t/switch", data={"action": "offline"}, headers=headers, follow_redirects=False)
    form = client.get(answer.headers["location"], headers=PAGE).text
    assert html.unescape(re.search('name="next" value="([^"]*)"', form)[1]) == back


def test_a_table_that_is_seen_in_part_leads_to_its_rows(client, tokens):
    for path in ("/tables/t", "/tables/t/log"):
        answer = client.get(path, headers=bearer(tokens["part"]) | PAGE)
        assert answer.status_code == 403
        assert 'href="/query?table=t"' in answer.text
    rows = client.get("/query?table=t&key=1", headers=bearer(tokens["part"]) | PAGE)
    assert rows.status_code == 200
    assert 'href="/tables/t"' not in rows.text
    assert 'href="/tables/t"' in client.get("/query?table=t", headers=bearer(tokens["read"]) | PAGE).text
    hidden = client.get("/tables/u", headers=bearer(tokens["part"]) | PAGE)
    assert (hidden.status_code, "/query?table" in hidden.text) == (403, False)
    page = client.get("/", headers=bearer(tokens["part"]) | PAGE).text
    assert 'href="/query?table=t"' in page
    assert "has no tables" not in page


@pytest.mark.parametrize(
    "path",
    ["//evil.example", "https://evil.example", "/\\evil.example", "evil", "/a\nb", "/\t/evil.example", "javascript:x"],
)
def test_a_sign_in_leads_to_pages_of_this_service_only(client, tokens, path):
    answer = client.post("/login", data={"token": tokens["read"], "next": path}, follow_redirects=False)
    assert answer.headers["location"] == "/"
    shown = client.get("/login", params={"next": path}).text
    assert 'name="next" value="/"' in shown


def test_a_session_ends_by_itself_and_with_its_token(client, tokens, lake, monkeypatch):
    passed = 0.0
    began, began_at = clock.monotonic_s(), clock.now()
    set_clock(monkeypatch, monotonic_s=lambda: began + passed, now=lambda: began_at + timedelta(seconds=passed))
    client.post("/login", data={"token": tokens["admin"]})
    assert client.get("/v1/tables").status_code == 200
    passed = SESSION_S
    assert client.get("/v1/tables").status_code == 401
    client.post("/login", data={"token": tokens["admin"]}, headers={"sec-fetch-site": "same-origin"})
    assert client.get("/v1/tables").status_code == 200
    for token in stored.tokens_of(lake.storage):
        stored.revoke_token(lake.storage, token.id)
    passed += stored.AGE_MAX_S
    assert client.get("/v1/tables").status_code == 401


def test_a_session_is_one_of_every_service_of_the_instance(client, tokens, lake):
    """Another service, or the same one after a restart."""
    client.post("/login", data={"token": tokens["read"]})
    (session,) = client.cookies.values()
    access = stored.AccessList(lake.storage)
    with TestClient(make_app(Service(lake, maintain=False), BearerAuthenticator(access))) as other:
        other.cookies.set(COOKIE, session)
        assert other.get("/v1/tables").status_code == 200
        assert "read-user" in other.get("/", headers=PAGE).text
        for token in stored.tokens_of(lake.storage):
            stored.revoke_token(lake.storage, token.id)
    after = BearerAuthenticator(stored.AccessList(lake.storage))
    with TestClient(make_app(Service(lake, maintain=False), after)) as third:
        third.cookies.set(COOKIE, session)
        assert third.get("/v1/tables").status_code == 401
    access.close()


def test_a_session_that_was_changed_or_made_elsewhere_is_none(client, tokens, lake, tmp_path):
    client.post("/login", data={"token": tokens["read"]})
    (session,) = client.cookies.values()
    parts = session.split(".")
    assert tokens["read"] not in session
    theirs = SealedSessions(lakebed.create(str(tmp_path / "other")).storage).begin(f"Bearer {tokens['read']}")
    plain = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
    changed = [".".join([*parts[:place], flip(parts[place]), *parts[place + 1 :]]) for place in (0, 2, 3, 4)]
    for forged in ("x", "....", "a.b.c", "é", "x" * 100_000, theirs, f"{plain}.e30.", *changed, session[:-3]):
        client.cookies.clear()
        answer = client.get("/v1/tables", headers={"cookie": f"{COOKIE}={forged}".encode()})
        assert answer.status_code == 401, forged[:80]
    lake.storage.replace("access/session-key.json", b"{}")
    with pytest.raises(lakebed.DamagedError, match="delete it"):
        SealedSessions(lake.storage).authorization(session)


def flip(text):
    return text[:5] + ("A" if text[5] != "A" else "B") + text[6:]


def test_a_token_that_fits_into_no_cookie_is_refused(lake):
    sessions = SealedSessions(lake.storage)
    token, longer = (base64.b64encode(random.Random(1).randbytes(size)).decode() for size in (2600, 2900))
    assert sessions.authorization(sessions.begin(token)) == token
    with pytest.raises(lakebed.UsageError, match="do not fit into a cookie"):
        sessions.begin(longer)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "same-origin"}, 303),
        ({"origin": "http://testserver.local"}, 303),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({}, 403),
    ],
)
def test_a_form_of_another_site_is_refused(client, tokens, headers, status):
    client.post("/login", data={"token": tokens["admin"]})
    answer = client.post("/tables/t/switch", data={"action": "offline"}, headers=headers | PAGE, follow_redirects=False)
    assert answer.status_code == status


def test_failures_are_counted_and_a_valid_token_always_passes(client, tokens):
    statuses = [client.get("/v1/tables", headers=bearer("lakebed_wrong")).status_code for _ in range(FAILURES_MAX + 2)]
    assert statuses == [401] * FAILURES_MAX + [429, 429]
    assert client.get("/v1/tables", headers=bearer(tokens["read"])).status_code == 200


def test_every_answer_has_the_headers_of_security(client, tokens):
    for path in ("/health/live", "/v1/tables", "/nothing", "/login", "/"):
        headers = client.get(path, headers=bearer(tokens["read"]) | PAGE).headers
        assert headers["x-content-type-options"] == "nosniff"
        policy = headers["content-security-policy"]
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy


def test_only_named_origins_may_use_the_api(client, tokens):
    asks = {"access-control-request-method": "GET", "access-control-request-headers": "authorization"}
    allowed = client.options("/v1/tables", headers={"origin": "https://app.example", **asks})
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"
    assert "access-control-allow-credentials" not in allowed.headers
    other = client.options("/v1/tables", headers={"origin": "https://evil.example", **asks})
    assert "access-control-allow-origin" not in other.headers


def test_without_authentication_only_names_of_this_machine_are_answered(lake):
    exposure = Exposure(hosts={"localhost", "127.0.0.1", "::1"})
    with TestClient(make_app(Service(lake, maintain=False), exposure=exposure)) as client:
        for host, status in (("localhost:8017", 200), ("[::1]:8017", 200), ("rebound.example", 403), ("", 403)):
            assert client.get("/v1/tables", headers={"host": host}).status_code == status, host
        for site, status in (("cross-site", 403), ("same-origin", 303)):
            answer = client.post(
                "/tables/t/switch",
                data={"action": "online"},
                headers={"host": "localhost", "sec-fetch-site": site} | PAGE,
                follow_redirects=False,
            )
            assert answer.status_code == status


def test_the_audit_log_says_who_asked_what(client, tokens, log):
    client.get("/v1/tables/t/scan?where=k%3E1", headers=bearer(tokens["read"]))
    client.post("/v1/sql", json={"statement": "SELECT 1\nAS n"}, headers=bearer(tokens["admin"]))
    client.get(f"/v1/tables?token={tokens['read']}")
    client.post("/login", data={"token": tokens["part"]}, follow_redirects=False)
    for path in HEALTH:
        client.get(path)
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert [(line["principal"], line["method"], line["path"], line["status"]) for line in lines] == [
        ("read-user", "GET", "/v1/tables/t/scan?where=k%3E1", 200),
        ("admin-user", "POST", "/v1/sql", 200),
        (None, "GET", "/v1/tables?token=lakebed_***", 401),
        ("part-user", "POST", "/login", 303),
    ]
    assert (lines[0]["table"], lines[0]["peer"], lines[0]["protocol"]) == ("t", "testclient", "http")
    assert lines[0]["bytes"] > 0
    assert lines[1]["statement"] == "SELECT 1\nAS n"
    for secret in tokens.values():
        assert secret.removeprefix("lakebed_") not in log.read_text()


def test_the_audit_log_names_the_tables_that_are_made(client, tokens, log):
    """Their names are in the body; also of those that are refused."""
    select = "SELECT k FROM source"
    made = {
        "/v1/tables": {"name": "made", "schema": {"row_key": {"k": "int64"}}},
        "/v1/views": {"name": "view", "source": "t", "select": select, "row_key": ["k"]},
        "/v1/indexes": {"name": "index", "table": "t", "on": ["note"]},
    }
    for role in ("read", "admin"):
        for path, body in made.items():
            client.post(path, json=body, headers=bearer(tokens[role]))
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    found = [(line["status"], line["table"], line.get("statement")) for line in lines]
    wanted = [("made", None), ("view", select), ("index", None)]
    assert found == [(status, *one) for status in (403, 201) for one in wanted]


def test_the_audit_log_is_rotated_and_its_owners_alone(tmp_path):
    place = tmp_path / "audit.log"
    log = AuditLog(str(place), file_bytes=1000, files_kept=2)
    for number in range(50):
        log.record(
            principal="p", interface="http", method="GET", path=f"/{number}", status=200, seconds=0.1, peer="::1"
        )
    log.close()
    assert {path.name for path in tmp_path.glob("audit.log*")} == {"audit.log", "audit.log.1", "audit.log.2"}
    assert place.stat().st_mode & 0o077 == 0
    assert all(path.stat().st_size <= 1000 for path in tmp_path.glob("audit.log*"))


def test_the_shortest_path_of_health_is_that_of_readiness(client):
    assert client.get("/health").json() == client.get("/health/ready").json() == {"status": "ready"}
