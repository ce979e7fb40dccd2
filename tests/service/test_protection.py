"""``lakebed serve`` as others on the network meet it: with TLS, slow clients, and secrets that must not get out."""

import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema
from lakebed.server.security import stored
from tests.s3.conftest import Spoilt
from tests.s3.conftest import served as served_store
from tests.service.served import served
from tests.waiting import WAIT_S

PLANTED = "planted-3f9c-secret"
"""The value of a storage option, which no surface may show."""


@pytest.fixture
def lake(tmp_path):
    made = lakebed.create(str(tmp_path / "lake"))
    made.create_table("t", Schema({"k": "int64"})).write(pa.table({"k": [1]}))
    return made


def run(lake, *words):
    command = [sys.executable, "-m", "lakebed.cli", "--instance", lake.url, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


REFUSED = [
    (["--host", "0.0.0.0"], "lakebed token create"),
    (["--host", "::"], "lakebed token create"),
    (["--tls-cert", __file__], "--tls-cert and --tls-key go together"),
    (["--tls-cert", __file__, "--tls-key", __file__], "not a certificate chain"),
    (["--tls-cert", "/nowhere", "--tls-key", "/nowhere"], "--tls-cert /nowhere: there is no such file"),
    (["--jwks", __file__], "--jwt-issuer"),
    (["--jwt-issuer", "x"], "need --jwks"),
    (["--audit-log", "/nowhere/audit.log"], "--audit-log /nowhere/audit.log"),
    (["--iceberg-properties", __file__], "not a file with a JSON object of texts"),
    (["--iceberg-properties", "/nowhere"], "--iceberg-properties /nowhere"),
    (["--iceberg-catalog", "prod."], "is not CATALOG or CATALOG.NAMESPACE"),
]
"""Options that do not let a service start, and what it says of them."""


def test_a_service_without_protection_does_not_start(lake):
    """One process is asked to start each after the other, for its imports take longest; it ends unless one starts."""
    lines = [["--instance", lake.url, "serve", "--port", "0", "--no-maintenance", *options] for options, _ in REFUSED]
    program = "import sys, json\nfrom lakebed.cli import main\nfor line in json.loads(sys.argv[1]):\n"
    program += "    print(main(line), flush=True)\n    print(chr(0), file=sys.stderr, flush=True)"
    command = [sys.executable, "-c", program, json.dumps(lines)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)
    assert ran.stdout.split() == ["2"] * len(REFUSED), ran.stderr
    for (_, said), message in zip(REFUSED, ran.stderr.split("\0\n"), strict=False):
        assert said in message


def certificate(folder):
    """A certificate for localhost, and its key."""
    import datetime as dt
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    cert, private = folder / "cert.pem", folder / "key.pem"
    cert.write_bytes(built.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return cert, private


def test_a_service_over_tls_on_any_address_with_tokens(lake, tmp_path):
    cert, key = certificate(tmp_path)
    made = run(lake, "--json", "token", "create", "ann", "--role", "read")
    secret = json.loads(made.stdout)["token"]
    audit = tmp_path / "audit.log"
    options = ["--host", "0.0.0.0", "--no-maintenance", "--tls-cert", cert, "--tls-key", key, "--audit-log", audit]
    with served(lake.url, *map(str, options)) as service:
        url = service.url.replace("0.0.0.0", "localhost")
        trusting = ssl.create_default_context(cafile=cert)
        request = urllib.request.Request(f"{url}/v1/tables", headers={"Authorization": f"Bearer {secret}"})
        with urllib.request.urlopen(request, context=trusting, timeout=120) as answer:
            assert answer.status == 200
            assert "strict-transport-security" in answer.headers
        form = f"token={secret}".encode()
        opener = urllib.request.build_opener(_Stay, urllib.request.HTTPSHandler(context=trusting))
        with pytest.raises(urllib.error.HTTPError) as caught:
            opener.open(f"{url}/login", form, timeout=120)
        with caught.value as answer:
            assert answer.code == 303
            assert "Secure" in answer.headers["set-cookie"]
    lines = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(line["principal"], line["status"]) for line in lines] == [("ann", 200), ("ann", 303)]
    assert secret not in audit.read_text()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_):
        return None


@pytest.fixture
def store():
    """A store that needs a secret."""
    with served_store() as server:
        yield server


def test_no_surface_shows_a_secret(store, tmp_path):
    """The secret of the store is given to the service and to its workers: no answer, page, log or plan has it."""
    options = store.storage_options | {"aws_secret_access_key": PLANTED}
    made = lakebed.create(f"{store.new_bucket()}/lake", storage_options=options)
    made.create_table("t", Schema({"k": "int64"})).write(pa.table({"k": [1]}))
    _, secret = stored.create_token(made.storage, "root", ["admin"])
    audit = tmp_path / "audit.log"
    shared = [word for name, value in options.items() for word in ("--option", f"{name}={value}")]
    with served(made.url, *shared, "--no-maintenance", "--audit-log", str(audit)) as service:
        paths = (
            "/",
            "/tables/t",
            "/v1/tables",
            "/v1/tables/t",
            "/v1/status",
            "/v1/settings",
            "/v1/nothing",
            "/metrics",
        )
        accepts = ("text/html", "application/json")
        answers = [_asked(service.url + path, secret, accept) for path in paths for accept in accepts]
        statements = ("EXPLAIN ANALYZE SELECT * FROM t", "SELECT * FROM nothing", "SELECT 1 / 0", "SELECT k FROM t")
        bodies = [json.dumps({"statement": statement}) for statement in statements]
        answers += [_asked(f"{service.url}/v1/sql", secret, "*/*", body) for body in bodies]
        store.spoil = lambda request: Spoilt("403 Forbidden", b"<Error><Code>SignatureDoesNotMatch</Code></Error>")
        answers += [_asked(f"{service.url}/v1/tables/t/scan", secret, "*/*")]
        store.spoil = None
        service.process.terminate()
        answers += filter(None, service.process.communicate(timeout=60))
    assert '"k":1' in "".join(answers).replace(" ", "")
    seen = "".join([*answers, audit.read_text()])
    for hidden in (PLANTED, secret.removeprefix("lakebed_")):
        assert hidden not in seen


def _asked(url, secret, accept, body=None):
    headers = {"Authorization": f"Bearer {secret}", "Accept": accept, "Content-Type": "application/json"}
    request = urllib.request.Request(url, None if body is None else body.encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.read().decode()
