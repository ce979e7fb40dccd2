"""The client where the service, or what is between, fails: what is repeated, what is raised, and what is not lost."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
from contextlib import contextmanager

import pyarrow as pa
import pytest

import lakebed
from lakebed.errors import Code
from lakebed.table.client.remote_rows import encoded
from tests.processes.web.serving import serving
from tests.raising import raises

ARROW = "application/vnd.apache.arrow.stream"


def request_on(connection):
    """A request, with the body that its headers announce."""
    data = connection.recv(65536)
    head, _, body = data.partition(b"\r\n\r\n")
    (left,) = [int(line[16:]) - len(body) for line in head.split(b"\r\n") if line[:16] == b"Content-Length: "] or [0]
    while left > 0 and (more := connection.recv(left)):
        data, left = data + more, left - len(more)
    return data


@contextmanager
def answering(*answers):
    """A server that gives each connection the next of these answers, as bytes; it keeps the requests."""
    asked = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            for data in answers:
                with listening.accept()[0] as connection:
                    asked.append(request_on(connection))
                    connection.sendall(data)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}", asked
        thread.join(120)


def response(status, document=None, body=None, kind="application/json"):
    data = json.dumps(document).encode() if body is None else body
    return f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(data)}\r\n\r\n".encode() + data


def error(kind, code):
    return {"error": {"kind": kind, "code": code, "message": "said"}}


TABLES = response(200, {"tables": ["t"]})
BUSY = response(503, error("storage", "store_unavailable"))


def failure(call):
    with pytest.raises(lakebed.Error) as caught:
        call()
    return caught.value


def test_nothing_that_listens_is_said():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    lake = lakebed.connect(f"http://127.0.0.1:{port}")
    found = failure(lake.tables)
    assert (type(found), found.code) == (lakebed.StorageError, Code.SERVICE_UNREACHABLE)
    assert f"127.0.0.1:{port}" in found.message
    assert "refused" in found.message
    # Nothing was begun, so the outcome of a write is clear.
    assert failure(lambda: lake.set(split_rows=1)).code is Code.SERVICE_UNREACHABLE


def test_reads_are_repeated():
    with answering(b"", BUSY, TABLES) as (url, asked):
        assert lakebed.connect(url, token="secret").tables() == ["t"]
    assert len(asked) == 3
    assert all(b"Authorization: Bearer secret" in one for one in asked)


def test_reads_are_repeated_twice_and_no_more():
    with answering(BUSY, BUSY, BUSY) as (url, asked):
        assert failure(lakebed.connect(url).tables).code is Code.STORE_UNAVAILABLE
    assert len(asked) == 3


def test_a_query_without_an_answer_is_submitted_again_with_its_id():
    with answering(b"", response(202, {"id": "q"})) as (url, asked):
        assert lakebed.connect(url).submit_sql("SELECT 1").id == "q"
    first, second = (json.loads(one.partition(b"\r\n\r\n")[2]) for one in asked)
    assert first == second
    assert first["id"]


def test_a_write_without_an_answer_is_unknown_and_not_repeated():
    with answering(b"") as (url, asked):
        found = failure(lambda: lakebed.connect(url).set(split_rows=1))
    assert (type(found), found.code) == (lakebed.UnknownOutcomeError, Code.COMMIT_UNKNOWN)
    assert len(asked) == 1


def test_a_write_that_is_refused_is_not_repeated():
    with answering(response(503, error("contention", "commit_contended"))) as (url, asked):
        assert failure(lambda: lakebed.connect(url).set(split_rows=1)).code is Code.COMMIT_CONTENDED
    assert len(asked) == 1


@pytest.mark.parametrize(
    "answer",
    [
        response(200, body=b"<html>", kind="text/html"),
        response(404, body=b"<html>", kind="text/html"),
        response(302, body=b""),
        response(500, {"error": 1}),
    ],
    ids=["page", "no page", "redirect", "other JSON"],
)
def test_what_is_no_service_is_said(answer):
    with answering(answer) as (url, _):
        assert failure(lakebed.connect(url).tables).code is Code.SERVICE_UNREACHABLE


def test_an_error_of_a_newer_service_has_its_class():
    with answering(response(409, error("exists", "something_new"))) as (url, _):
        found = failure(lambda: lakebed.connect(url).set(split_rows=1))
    assert isinstance(found, lakebed.ExistsError)
    assert found.message == "said"


def stream(rows):
    return b"".join(encoded(rows.to_reader(max_chunksize=10)))


@pytest.mark.parametrize("chunked", [True, False], ids=["chunked", "length"])
@pytest.mark.parametrize("share", [0.5, 0.99])
def test_a_stream_that_is_cut_never_looks_like_its_end(chunked, share):
    data = stream(pa.table({"k": list(range(1000))}))
    sent = data[: int(len(data) * share)]
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {ARROW}\r\n"
    if chunked:
        body = f"{head}Transfer-Encoding: chunked\r\n\r\n{len(sent):x}\r\n".encode() + sent + b"\r\n"
    else:
        body = f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + sent
    with answering(body) as (url, _):
        rows = lakebed.connect(url).sql("SELECT 1")
        got = []
        with pytest.raises(lakebed.StorageError) as caught:
            got.extend(batch.num_rows for batch in rows)
    assert caught.value.code is Code.TRANSFER_INTERRUPTED
    assert 0 < sum(got) < 1000


def test_a_slow_answer_ends_at_the_time_limit():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        lake = lakebed.connect(f"http://127.0.0.1:{listening.getsockname()[1]}", timeout_s=0.05)
        assert failure(lake.tables).code is Code.SERVICE_UNREACHABLE
        assert failure(lambda: lake.set(split_rows=1)).code is Code.COMMIT_UNKNOWN


@pytest.mark.parametrize(
    "url", ["", "localhost:8017", "ftp://host", "http://", "http://user:word@host", "http://h?a=b", 7]
)
def test_a_url_that_is_none_is_refused(url):
    with raises(Code.ARGUMENT_INVALID):
        lakebed.connect(url)


def test_a_proxy_of_the_environment_is_used(monkeypatch):
    with answering(TABLES) as (url, asked):
        monkeypatch.setenv("http_proxy", url)
        monkeypatch.setenv("no_proxy", "")
        assert lakebed.connect("http://lake.invalid:8017").tables() == ["t"]
    assert asked[0].startswith(b"GET http://lake.invalid:8017/v1/tables ")


def test_a_source_of_rows_that_fails_adds_nothing(tmp_path):
    lake = lakebed.create(str(tmp_path))
    table = lake.create_table("t", lakebed.Schema({"k": "int64"}))

    def batches():
        for first in range(0, 100_000, 1000):
            yield pa.record_batch({"k": list(range(first, first + 1000))})
        raise ZeroDivisionError("of the source")

    rows = pa.RecordBatchReader.from_batches(pa.schema([("k", pa.int64())]), batches())
    with serving(lake) as url, lakebed.connect(url) as connected:
        with pytest.raises(lakebed.UsageError, match="ZeroDivisionError: of the source"):
            connected.table("t").write(rows)
        assert connected.table("t").count(exact=True).rows == 0
        assert connected.table("t").write(pa.table({"k": [1]})) == table.state().version


def test_a_stream_that_is_closed_early_ends_the_read(tmp_path):
    lake = lakebed.create(str(tmp_path))
    lake.create_table("t", lakebed.Schema({"k": "int64"})).write(pa.table({"k": list(range(300_000))}))
    with serving(lake) as url, lakebed.connect(url) as connected:
        for _ in range(3):
            with connected.table("t").scan() as rows:
                assert rows.read_next_batch().num_rows > 0
        assert failure(rows.read_all).code is Code.ALREADY_CLOSED
        assert connected.table("t").count(exact=True).rows == 300_000


def test_a_ca_file_without_certificates_is_refused(tmp_path):
    for content in (None, "no certificate"):
        if content is not None:
            (tmp_path / "ca.pem").write_text(content)
        with pytest.raises(lakebed.UsageError, match="ca_file"):
            lakebed.connect("https://localhost:1", ca_file=tmp_path / "ca.pem")


def certificate(folder):
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost "
        f"-keyout {folder}/key.pem -out {folder}/cert.pem"
    )
    subprocess.run(command.split(), check=True, capture_output=True)


def test_a_certificate_is_checked(tmp_path):
    import ssl

    certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def answer():
            for _ in range(2):
                connection, _ = listening.accept()
                try:
                    with context.wrap_socket(connection, server_side=True) as secure:
                        secure.recv(65536)
                        secure.sendall(TABLES)
                except OSError:
                    connection.close()

        threading.Thread(target=answer, daemon=True).start()
        url = f"https://localhost:{listening.getsockname()[1]}"
        found = failure(lakebed.connect(url).tables)
        assert found.code is Code.SERVICE_UNREACHABLE
        assert "certificate" in found.message.lower()
        assert lakebed.connect(url, ca_file=tmp_path / "cert.pem").tables() == ["t"]
