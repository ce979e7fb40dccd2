"""The same through a service with tokens, which has its own process."""

import json
import re
import subprocess
import sys

import pytest
import sqlalchemy as sa
from sqlalchemy import exc

import lakebed
from lakebed.errors import Code


def command(folder, *words):
    return subprocess.run(
        [sys.executable, "-m", "lakebed", *words, "-i", folder, "--json"], check=True, capture_output=True, text=True
    ).stdout


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    """The URL of a service without its scheme, and a token of each of two roles."""
    folder = str(tmp_path_factory.mktemp("lake") / "lake")
    lakebed.create(folder).execute("CREATE TABLE t (k INT PRIMARY KEY, tags VARCHAR[])")
    tokens = {role: json.loads(command(folder, "token", "create", role, "--role", role))["token"] for role in ROLES}
    serve = [sys.executable, "-m", "lakebed", "serve", "-i", folder, "--port", "0", "--in-process", "--no-maintenance"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            found = next((found for line in process.stdout if (found := re.search(r"http://([\d.]+:\d+)", line))), None)
            assert found is not None, "the service ended before it said its address"
            yield found[1], tokens
        finally:
            process.terminate()
            process.communicate(timeout=60)


ROLES = ("admin", "read")


def engine_of(service, role):
    place, tokens = service
    return sa.create_engine(f"lakebed+http://:{tokens[role]}@{place}")


def test_tables_are_made_written_reflected_and_read(service):
    engine = engine_of(service, "admin")
    columns = [sa.Column("k", sa.Integer), sa.Column("at", sa.DateTime), sa.Column("v", sa.ARRAY(sa.Integer))]
    made = sa.Table("made", sa.MetaData(), *columns, sa.Index("by_at", "at"), lakebed_key="k")
    made.create(engine)
    with engine.connect() as connection:
        connection.execute(made.insert(), [{"k": 1, "v": [1, 2]}, {"k": 1, "v": None}])
        connection.execute(made.insert(), {"k": 2, "v": []})
        found = sa.Table("made", sa.MetaData(), autoload_with=connection)
        assert dict(found.dialect_kwargs) == {"lakebed_key": "k"}
        assert [one.name for one in found.indexes] == ["by_at"]
        assert sa.inspect(connection).get_table_names() == ["made", "t"]
        assert sorted(connection.execute(sa.select(found.c.k, found.c.v)), key=str) == [
            (1, None), (1, [1, 2]), (2, []),
        ]  # fmt: skip


def test_a_role_that_reads_cannot_write(service):
    with engine_of(service, "read").connect() as connection:
        assert connection.scalar(sa.text("SELECT count(*) FROM t")) == 0
        with pytest.raises(exc.OperationalError) as raised:
            connection.execute(sa.text("DELETE FROM t WHERE k = 1"))
        assert raised.value.orig.code is Code.PERMISSION_MISSING


def test_a_wrong_token_and_a_service_that_is_not_there_are_operational_errors(service):
    for url in (f"lakebed+http://:wrong@{service[0]}", "lakebed+http://127.0.0.1:1"):
        engine = sa.create_engine(url)
        with pytest.raises(exc.OperationalError), engine.connect() as connection:
            connection.scalar(sa.text("SELECT 1"))
        with pytest.raises(exc.OperationalError), engine.connect() as connection:
            sa.inspect(connection).has_table("t")
