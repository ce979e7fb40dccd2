"""Commits through a service: the real application on a socket, and whatever else may answer in its place."""

import _thread
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import msgspec
import pyarrow as pa
import pytest
import urllib3

import lakebed
from lakebed.errors import AccessError, Code, StorageError, UnknownOutcomeError, UsageError
from lakebed.log import commit_messages
from lakebed.log.commit_messages import INSTANCE_HEADER, decode_answer, encode_answer
from lakebed.log.outcomes import Committed, Contended, Crowded, NotCommitted, Unknown
from lakebed.log.through_service import REQUESTS_MAX, check_service_url
from lakebed.model.state.catalog import RegisterTable
from lakebed.model.state.proposal_codec import encode_proposal
from lakebed.model.state.transactions import AddIndex, CloseJob, DropIndex, ProposeExpiry, TooManyRuns, TooOld
from lakebed.server.security.principal import Permission, Principal, Role
from lakebed.testing.faults import Meanwhile
from lakebed.testing.logs import CommitterConformance
from tests.processes.web.serving import listening, serving
from tests.raising import raises
from tests.tables.retention.cases import through


@pytest.fixture
def root(tmp_path):
    """The URL of an instance with a table."""
    schema = lakebed.Schema({"k": "int64"}, values={"v": "string"})
    lakebed.create(str(tmp_path / "lake")).create_table("t", schema, merge=lakebed.Latest())
    return str(tmp_path / "lake")


@pytest.fixture
def before_answers():
    """Functions that are called with the path of each request before it is answered."""
    return []


@pytest.fixture
def service(root, before_answers):
    """The URL of its service."""
    with serving(lakebed.open(root), answering=lambda path: [call(path) for call in before_answers]) as url:
        yield url


class TestThroughAService(CommitterConformance):
    @pytest.fixture
    def open_log(self, tmp_path):
        root = str(tmp_path / "empty")
        with serving(lakebed.create(root)) as url:
            yield lambda: lakebed.open(root, commit_via=url).catalog_log()


def rows(*keys, value="a"):
    return pa.table({"k": pa.array(keys, pa.int64()), "v": [value] * len(keys)})


def test_a_write_is_committed_by_the_service_and_read_from_the_store(root, service):
    table = lakebed.open(root, commit_via=service).table("t")
    assert table.write(rows(1, 2)) == 2
    assert table.count().rows == 2
    assert lakebed.open(root).table("t").get(2).num_rows == 1


def test_a_process_reads_its_own_write_whatever_staleness_it_allows(root, service):
    """It did not read the log after the write."""
    table = lakebed.open(root, commit_via=service).table("t")
    table.snapshot()
    table.write(rows(1))
    assert table.version == 1
    assert table.get(1, max_staleness=3600).num_rows == 1
    assert table.version == 2


def test_every_change_of_a_table_works_and_sees_the_ones_before(root, service):
    """Those that no service takes are committed by the process itself."""
    lake = lakebed.open(root, commit_via=service)
    table = lake.table("t")
    table.write(rows(1, 2, 3))
    table.delete([2])
    table.tag("before")
    table.remove(lakebed.KeyRange(3))
    assert table.scan().read_all().column("k").to_pylist() == [1]
    table.alter(lakebed.AddField("w", "int64"))
    table.restore(tag="before")
    table.set(runs_max=2)
    other = lake.create_table("u", lakebed.Schema({"k": "int64"}))
    other.write(pa.table({"k": [1]}))
    lake.drop_table("u")
    assert table.scan().read_all().to_pylist() == [{"k": 1, "v": "a", "w": None}, {"k": 3, "v": "a", "w": None}]
    assert lakebed.open(root).table("t").verify().findings == ()


@pytest.fixture
def sent(before_answers):
    """The paths of the requests that the service has answered."""
    found = []
    before_answers.append(found.append)
    return found


def test_administration_goes_through_the_service(root, service, sent):
    lake = lakebed.open(root, commit_via=service)
    table = lake.table("t")
    ours, catalog = f"/v1/tables/{table.id}/commits", "/v1/catalog/commits"
    changes = [
        (lambda: table.set(runs_max=7), [ours]),
        (lambda: table.alter(lakebed.AddField("w", "int64")), [ours]),
        (lambda: table.alter(lakebed.SetFilter("k > 1"), lakebed.AgeOff(None)), [ours]),
        (lambda: table.alter(lakebed.SetMerge(lakebed.First())), [ours]),
        (lambda: table.tag("now"), [ours]),
        (lambda: table.untag("now"), [ours]),
        (lambda: lake.set(log_s=86_400), [catalog]),
        (lambda: lake.pause("t", "gc"), [catalog]),
        (lambda: lake.set_online("t", False), [catalog]),
        (lambda: lake.rename_table("t", "u"), [catalog]),
        (lambda: lake.create_table("v", lakebed.Schema({"k": "int64"})), [catalog]),
        (lambda: lake.rename_table("u", "v", replace=True), [catalog]),
        (lambda: lake.rename_table("v", "u"), [catalog]),
    ]
    for change, expected in changes:
        sent.clear()
        change()
        assert sent == expected
    other = lakebed.open(root)
    assert (other.tables(), other.paused("u"), other.is_online("u")) == (["u"], {"gc"}, False)
    assert other.settings()["log_s"] == 86_400
    assert other.table("u").settings()["runs_max"] == 7
    assert other.table("u").schema.names == ("k", "v", "w")
    assert other.table("u").verify().sound


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda lake: lake.create_table("t", lakebed.Schema({"k": "int64"})), Code.TABLE_EXISTS),
        (lambda lake: lake.rename_table("nope", "u"), Code.TABLE_NOT_FOUND),
        (lambda lake: lake.set(log_s=-1), Code.SETTING_INVALID),
        (lambda lake: lake.table("t").alter(lakebed.DropField("nope")), Code.SCHEMA_CHANGE_REJECTED),
        (lambda lake: lake.table("t").untag("nope"), Code.TAG_MISSING),
    ],
)
def test_a_refused_change_is_the_same_error(root, service, change, code):
    for lake in (lakebed.open(root), lakebed.open(root, commit_via=service)):
        with pytest.raises(lakebed.Error) as caught:
            change(lake)
        assert caught.value.code is code


def test_a_principal_changes_what_its_roles_administer(root):
    """A table is created under a name, and renamed from one to another."""
    principal = Principal(
        "ann", (Role("w", Permission.WRITE, frozenset({"t"})), Role("a", Permission.ADMIN, frozenset({"mine", "my2"})))
    )

    class Ann:
        def authenticate(self, authorization):
            return principal

    with serving(lakebed.open(root), Ann()) as url:
        lake = lakebed.open(root, commit_via=url)
        table = lake.table("t")
        table.write(rows(1))
        table.tag("now")
        mine = lake.create_table("mine", lakebed.Schema({"k": "int64"}))
        mine.set(runs_max=7)
        lake.rename_table("mine", "my2")
        lake.pause("my2")
        # Under another name it would be hers.
        stolen = RegisterTable(table.id, "mine", 10**6)
        for change in (
            lambda: table.set(runs_max=7),
            lambda: table.alter(lakebed.AddField("w", "int64")),
            lambda: lake.pause("t"),
            lambda: lake.drop_table("t"),
            lambda: lake.rename_table("t", "mine"),
            lambda: lake.rename_table("my2", "yours"),
            lambda: lake.rename_table("my2", "t", replace=True),
            lambda: lake.create_table("yours", lakebed.Schema({"k": "int64"})),
            lambda: lake.set(log_s=86_400),
            lambda: lake.catalog_log().commit(stolen),
        ):
            with pytest.raises(AccessError) as caught:
                change()
            assert caught.value.code is Code.PERMISSION_MISSING
        lake.drop_table("my2")
    assert lakebed.open(root).tables() == ["t"]
    assert lakebed.open(root).table("t").tags() == {"now": 2}


def test_requests_and_their_withdrawal_go_through_the_service(root, service, tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(rows(1), tmp_path / "a.parquet")
    table = lakebed.open(root, commit_via=service).table("t")
    table.submit(tmp_path / "a.parquet")
    (request,) = table.requests().column("id").to_pylist()
    table.withdraw(request)
    assert table.requests().column("state").to_pylist() == ["rejected"]


def test_a_repeat_with_the_same_id_adds_nothing(root, service):
    table = lakebed.open(root, commit_via=service).table("t")
    assert table.write(rows(1), commit_id="monday") == 2
    assert lakebed.open(root, commit_via=service).table("t").write(rows(1), commit_id="monday") == 2
    assert lakebed.open(root).table("t").count().rows == 1


def test_a_refusal_has_its_code_and_facts_and_the_state_that_decided(root, service):
    """The schema was changed by another process."""
    table = lakebed.open(root, commit_via=service).table("t")
    table.snapshot()
    lakebed.open(root).table("t").set(runs_max=50)
    refused = table.log.commit(CloseJob("job-0001", "it is late"))
    assert isinstance(refused, NotCommitted)
    assert (refused.code, refused.facts["job"]) == (Code.JOB_NOT_OPEN, "job-0001")
    assert table.version == 2


def test_the_proposals_of_many_threads_share_requests_and_entries(root, service, sent):
    table = lakebed.open(root, commit_via=service).table("t")
    with ThreadPoolExecutor(16) as threads:
        versions = list(threads.map(lambda n: table.write(rows(n)), range(200)))
    assert len(sent) < 200
    assert table.count().rows == 200
    assert sorted(set(versions)) == list(range(2, table.version + 1))


def test_clients_of_several_processes_share_entries(root, service):
    tables = [lakebed.open(root, commit_via=service).table("t") for _ in range(8)]
    with ThreadPoolExecutor(32) as threads:
        list(threads.map(lambda n: tables[n % 8].write(rows(n)), range(320)))
    reader = lakebed.open(root).table("t")
    assert reader.count().rows == 320
    assert reader.version < 320
    assert reader.verify(files=True).findings == ()


def test_waiting_requests_leave_the_threads_of_other_endpoints_alone(root):
    """More requests than the application has threads wait for one entry."""
    gate, puts = threading.Event(), threading.Semaphore(0)

    def slow():
        puts.release()
        gate.wait()

    lake = lakebed.open(root)
    lake = through(lake, Meanwhile(lake.storage, "create", "*/log/*", slow, again=True))
    table = lake.table("t")
    with serving(lake) as url, ThreadPoolExecutor(100) as threads:
        pool = urllib3.PoolManager(maxsize=200)
        body = commit_messages.encode_request(lake.id, [encode_proposal(ProposeExpiry())])
        write = lakebed.open(root, commit_via=url).table("t").write
        first = threads.submit(write, rows(1))
        puts.acquire()
        waiting = [
            threads.submit(
                pool.request,
                "POST",
                f"{url}/v1/tables/{table.id}/commits",
                body=body,
                headers={"Content-Type": "application/msgpack"},
            )
            for _ in range(80)
        ]
        while len(table.log.local.queue) < 80:
            gate.wait(0.01)
        assert pool.request("GET", f"{url}/v1/tables").status == 200
        gate.set()
        assert first.result() == 2
        assert {decode_answer(one.result().data)[1][0] for one in waiting} == {Committed(2, repeated=True)}


# -- bad input ---------------------------------------------------------------------------------------------------


def post(url, root, proposals=(), table=None, **changes):
    """The answer to a request as JSON."""
    lake = lakebed.open(root)
    document = {"protocol": commit_messages.PROTOCOL, "instance": lake.id, "proposals": proposals} | changes
    name = table or lake.table("t").id
    return urllib3.request("POST", f"{url}/v1/tables/{name}/commits", json=document)


def test_a_request_may_be_json(root, service):
    answer = post(service, root, [{"type": "propose_expiry"}, {"type": "close_job", "job": "job-0001", "reason": ""}])
    assert answer.headers[INSTANCE_HEADER] == lakebed.open(root).id
    found = answer.json()
    assert [one["type"] for one in found["outcomes"]] == ["committed", "not_committed"]
    assert (found["version"], found["outcomes"][0]["repeated"]) == (1, True)


def test_an_invalid_proposal_affects_no_other(root, service):
    found = post(service, root, [{"type": "no_such"}, {"type": "propose_expiry"}, 7]).json()
    assert [one["type"] for one in found["outcomes"]] == ["failed", "committed", "failed"]
    assert found["outcomes"][0]["error"]["code"] == "request_invalid"


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"protocol": 99}, 400, "commit_service_mismatch"),
        ({"instance": "another-instance"}, 400, "commit_service_mismatch"),
        ({"proposals": 7}, 400, "request_invalid"),
        ({"proposals": [{}] * 1025}, 400, "request_invalid"),
        ({"table": "no-such-table"}, 404, "table_not_found"),
    ],
)
def test_a_request_that_is_none_commits_nothing(root, service, changes, status, code):
    answer = post(service, root, **changes)
    assert (answer.status, answer.json()["error"]["code"]) == (status, code)


@pytest.mark.parametrize("kind", ["text/html", "", "application/x-www-form-urlencoded"])
def test_a_request_of_another_type_is_refused(root, service, kind):
    url = f"{service}/v1/tables/{lakebed.open(root).table('t').id}/commits"
    answer = urllib3.request("POST", url, body=b"{}", headers={"Content-Type": kind})
    assert (answer.status, answer.json()["error"]["code"]) == (400, "request_invalid")


def test_a_request_that_is_too_large_is_refused(root, service):
    url = f"{service}/v1/tables/{lakebed.open(root).table('t').id}/commits"
    body = b"x" * (commit_messages.REQUEST_BYTES_MAX + 1)
    try:
        answer = urllib3.request("POST", url, body=body, headers={"Content-Type": "application/msgpack"})
    except urllib3.exceptions.HTTPError:
        # It closed the connection while the body was sent.
        return
    assert answer.status == 413


class Holders:
    """Everyone who has the token has a permission."""

    def __init__(self, permission):
        self.permission = permission

    def authenticate(self, authorization):
        if authorization != "Bearer sesame":
            raise Code.NOT_AUTHENTICATED("who are you?")
        return Principal.everywhere("holder", self.permission)


def test_a_principal_needs_the_permission_to_write(root):
    with serving(lakebed.open(root), Holders(Permission.READ)) as url:
        with pytest.raises(AccessError, match="who are you") as unknown:
            lakebed.open(root, commit_via=url).table("t").write(rows(1))
        with pytest.raises(AccessError, match="may not write") as reader:
            lakebed.open(root, commit_via=url, token="sesame").table("t").write(rows(1))
    assert (unknown.value.code, reader.value.code) == (Code.NOT_AUTHENTICATED, Code.PERMISSION_MISSING)
    assert "sesame" not in repr(lakebed.open(root, commit_via=url, token="sesame").table("t").log._committer._service)


def test_a_writer_neither_adds_nor_drops_an_index(root):
    """Reads by values would go by what another table says."""
    instance = lakebed.open(root)
    index = instance.create_index("t_by_v", table="t", on=["v"])
    with serving(instance, Holders(Permission.WRITE)) as url:
        table = lakebed.open(root, commit_via=url, token="sesame").table("t")
        table.write(rows(1))
        for proposal in (AddIndex(index.id, (1,)), DropIndex(index.id)):
            with raises(Code.PERMISSION_MISSING):
                table.commit(proposal)
    assert instance.indexes("t") == {"t_by_v": ["v"]}


def test_a_service_of_another_instance_is_an_error_and_commits_nothing(root, tmp_path):
    other = lakebed.create(str(tmp_path / "other"))
    with serving(other) as url, pytest.raises(UsageError, match="serves instance") as error:
        lakebed.open(root, commit_via=url).table("t").write(rows(1))
    assert error.value.code is Code.COMMIT_SERVICE_MISMATCH
    assert lakebed.open(root).table("t").count().rows == 0


def test_a_service_that_is_down_is_a_transient_error_and_nothing_is_committed(root):
    with listening() as bound:
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        table = lakebed.open(root, commit_via=url).table("t")
        with pytest.raises(StorageError, match="nothing was committed") as error:
            table.write(rows(1))
    assert (error.value.code, error.value.transient) == (Code.COMMIT_SERVICE_UNREACHABLE, True)
    assert lakebed.open(root).table("t").version == 0 or table.count().rows == 0


@pytest.mark.parametrize("url", ["", "lake:8017", "ftp://lake", "http://", "http://lake?x=1", 7, "http://u:p@lake"])
def test_a_url_that_cannot_be_meant_is_refused_when_the_instance_is_opened(root, url):
    with pytest.raises(UsageError) as error:
        lakebed.open(root, commit_via=url)
    assert "u:p" not in str(error.value)


def test_a_token_without_a_service_is_refused(root):
    with pytest.raises(UsageError, match="commit_via"):
        lakebed.open(root, token="sesame")


def test_a_slash_at_the_end_changes_nothing():
    assert check_service_url("https://lake.example/via/") == "https://lake.example/via"


# -- answers that are cut off, or come from something else -------------------------------------------------------


@contextmanager
def answering(respond):
    """A server that reads a request, calls ``respond(connection)``, and closes the connection; its URL."""
    with listening() as bound:
        bound.listen(16)
        bound.settimeout(0.1)
        ended = threading.Event()

        def run():
            while not ended.is_set():
                try:
                    connection, _ = bound.accept()
                except TimeoutError:
                    continue
                with connection:
                    connection.settimeout(120)
                    head = b""
                    while b"\r\n\r\n" not in head:
                        head += connection.recv(65536)
                    head, _, body = head.partition(b"\r\n\r\n")
                    (size,) = [int(one.split(b":")[1]) for one in head.split(b"\r\n") if b"ength" in one]
                    while len(body) < size:
                        body += connection.recv(65536)
                    respond(connection)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


def http(body, status=200, size=None, headers=""):
    length = len(body) if size is None else size
    return f"HTTP/1.1 {status} x\r\nContent-Length: {length}\r\n{headers}\r\n".encode() + body


OURS = f"{INSTANCE_HEADER}: x\r\n"
WHOLE = encode_answer(2, [Committed(2)], "msgpack")


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 2",
        http(WHOLE[:10], size=len(WHOLE), headers=OURS),
        http(b"\xc1", headers=OURS),
        http(encode_answer(2, [], "msgpack"), headers=OURS),
        http(b"<h1>Bad gateway</h1>", 502),
        http(b"", 504),
        http(b'{"error": {"code": "internal_error", "message": "bug"}}', 500),
    ],
    ids=["nothing", "cut in the head", "cut in the body", "no answer", "too few", "a gateway", "late", "a bug"],
)
def test_an_answer_that_is_not_clear_leaves_the_outcome_unknown_and_the_files_there(root, answer):
    with answering(lambda connection: connection.sendall(answer)) as url:
        table = lakebed.open(root, commit_via=url).table("t")
        with pytest.raises(
            UnknownOutcomeError, match=r"commit_id or job_id can be repeated with it.*`lakebed history`"
        ):
            table.write(rows(1), commit_id="monday")
    objects = [one.name for one in table.storage.list(f"tables/{table.id}/data")]
    assert len(objects) == 1
    with serving(lakebed.open(root)) as url:
        assert lakebed.open(root, commit_via=url).table("t").write(rows(1), commit_id="monday") == 2


@pytest.mark.parametrize(
    "answer", [http(b"<h1>It works</h1>"), http(b"", 404), http(b'{"detail": "no"}', 405), http(b"", 301)]
)
def test_a_server_that_is_no_service_is_an_error(root, answer):
    with answering(lambda connection: connection.sendall(answer)) as url:
        table = lakebed.open(root, commit_via=url).table("t")
        with pytest.raises(UsageError, match="lakebed serve") as error:
            table.write(rows(1))
    assert error.value.code is Code.COMMIT_SERVICE_MISMATCH


def test_a_service_whose_store_fails_before_the_commit_is_a_transient_error(root):
    body = b'{"error": {"code": "store_unavailable", "message": "the store is gone"}}'

    def respond(connection):
        connection.sendall(http(body, 503))

    with answering(respond) as url, pytest.raises(StorageError, match="the store is gone") as error:
        lakebed.open(root, commit_via=url).table("t").write(rows(1))
    assert error.value.transient


def test_all_callers_of_a_request_that_failed_have_its_error(root):
    """And one that comes later tries for itself."""
    with listening() as bound:
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        table = lakebed.open(root, commit_via=url).table("t")

        def write(number):
            with raises(Code.COMMIT_SERVICE_UNREACHABLE):
                table.write(rows(number))

        with ThreadPoolExecutor(4 * REQUESTS_MAX) as threads:
            list(threads.map(write, range(8 * REQUESTS_MAX)))


def test_an_interrupt_leaves_the_others_with_their_outcomes(root, service, before_answers):
    """The leader is interrupted while it waits for the answer."""
    table = lakebed.open(root, commit_via=service).table("t")
    table.write(rows(0))
    before_answers.append(lambda _: _thread.interrupt_main())
    with pytest.raises(KeyboardInterrupt):
        table.write(rows(1))
    before_answers.clear()
    assert table.write(rows(2)) == 4
    assert table.count().rows == 3


def test_outcomes_come_back_as_they_were():
    """Also the error of a proposal that was not made, with its class and facts."""
    outcomes = [
        Committed(4, repeated=True), NotCommitted(Code.JOB_CONFLICT, "why", {"file": "f", "job": "j"}), Contended(3),
        Crowded(4096), Unknown(9), TooOld(1, 2), TooManyRuns(3, 60, 50, job_open=True),
    ]  # fmt: skip
    version, (*found, error) = decode_answer(encode_answer(7, [*outcomes, Code.STORE_FULL("no room")], "msgpack"))
    assert (version, found) == (7, outcomes)
    assert (type(error), error.code, str(error)) == (StorageError, Code.STORE_FULL, "no room")
    as_json = msgspec.json.decode(encode_answer(7, outcomes, "json"))
    assert [one["type"] for one in as_json["outcomes"]][:2] == ["committed", "not_committed"]


def test_a_service_that_was_restarted_is_used_again(root):
    """On the same port: the connections that were kept are gone."""
    with listening() as bound:
        port = bound.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    table = lakebed.open(root, commit_via=url).table("t")
    for version in (2, 3):
        with serving(lakebed.open(root), port=port):
            assert table.write(rows(version)) == version
