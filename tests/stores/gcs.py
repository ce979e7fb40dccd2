"""The puts of Google Cloud Storage's XML API, in front of fake-gcs-server, which has them by the JSON API alone.

Every other request is passed on as it is. What is stored, its generations and whether a condition holds is decided by
the server behind: a put becomes its ``upload`` with ``ifGenerationMatch``, a multipart upload one put of all parts.
"""

from __future__ import annotations

import http.client
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

# Of a connection alone; and the server behind takes requests to its own host name only.
HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host"}


class XmlPuts(ThreadingHTTPServer):
    """Listens on a loopback port; ``behind`` is the port of fake-gcs-server."""

    daemon_threads = True

    def __init__(self, behind: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.behind = behind
        self.uploads: dict[str, dict[int, bytes]] = {}
        threading.Thread(target=self.serve_forever, name="gcs", daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: XmlPuts

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        self.pass_on()

    def do_HEAD(self) -> None:
        self.pass_on()

    def do_DELETE(self) -> None:
        self.pass_on()

    def do_POST(self) -> None:
        parts, query = urlsplit(self.path), parse_qs(urlsplit(self.path).query, keep_blank_values=True)
        if "uploads" in query:
            upload = f"upload-{len(self.server.uploads)}"
            self.server.uploads[upload] = {}
            self.body()
            self.answer(200, {}, f"<R><UploadId>{upload}</UploadId></R>".encode())
        elif "uploadId" in query:
            self.body()
            upload = self.server.uploads.pop(query["uploadId"][0])
            status, headers, said = self.put(parts.path, b"".join(upload[n] for n in sorted(upload)))
            etag = headers.get("ETag", "")
            self.answer(status, headers, f"<R><ETag>{etag}</ETag></R>".encode() if status == 200 else said)
        else:
            self.pass_on()

    def do_PUT(self) -> None:
        parts, query = urlsplit(self.path), parse_qs(urlsplit(self.path).query)
        if "uploadId" in query:
            number = int(query["partNumber"][0])
            self.server.uploads[query["uploadId"][0]][number] = self.body()
            self.answer(200, {"ETag": f'"part-{number}"'}, b"")
        else:
            self.answer(*self.put(parts.path, self.body()))

    def put(self, path: str, data: bytes) -> tuple[int, dict[str, str], bytes]:
        bucket, _, name = unquote(path).lstrip("/").partition("/")
        upload = f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(name, safe='')}"
        generation = self.headers.get("x-goog-if-generation-match")
        upload += "" if generation is None else f"&ifGenerationMatch={generation}"
        status, _, said = self.ask("POST", upload, {"Content-Type": "application/octet-stream"}, data)
        if status != 200:
            return status, {}, said
        stored = json.loads(said)
        return 200, {"ETag": f'"{stored["etag"]}"', "x-goog-generation": str(stored["generation"])}, b""

    def pass_on(self) -> None:
        headers = {name: text for name, text in self.headers.items() if name.lower() not in HOP_BY_HOP}
        self.answer(*self.ask(self.command, self.path, headers, self.body()))

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def ask(self, method: str, path: str, headers: dict[str, str], data: bytes) -> tuple[int, dict[str, str], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.behind, timeout=60)
        try:
            connection.request(method, path, data or None, headers)
            found = connection.getresponse()
            retained = {
                name: text for name, text in found.getheaders() if method == "HEAD" or name.lower() not in HOP_BY_HOP
            }
            return found.status, retained, found.read()
        finally:
            connection.close()

    def answer(self, status: int, headers: dict[str, str], data: bytes) -> None:
        self.send_response_only(status)
        for name, text in headers.items():
            self.send_header(name, text)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
