"""Superset with a database of its own in a folder, driven by its REST API, over a lake and over a service of it."""

import json
import os
import re
import subprocess
import sys

import pytest
from sales import KINDS, ROWS

import lakebed

CONFIG = """
from datetime import timedelta

SECRET_KEY = "0123456789abcdef0123456789abcdef"
SQLALCHEMY_DATABASE_URI = "sqlite:///{folder}/superset.db"
WTF_CSRF_ENABLED = False
TALISMAN_ENABLED = False
RATELIMIT_ENABLED = False
# A loaded machine takes minutes for what takes seconds.
SQLLAB_TIMEOUT = 600
TEST_DATABASE_CONNECTION_TIMEOUT = timedelta(minutes=10)
"""


@pytest.fixture(scope="session")
def lake(tmp_path_factory):
    folder = str(tmp_path_factory.mktemp("lake") / "lake")
    made = lakebed.create(folder)
    made.create_table("sales", lakebed.Schema({"id": "int64"}, values=KINDS), merge=lakebed.Latest())
    made.table("sales").write(ROWS)
    made.execute("CREATE TABLE shops (name VARCHAR PRIMARY KEY, city VARCHAR)")
    made.execute("INSERT INTO shops VALUES ('oslo', 'Oslo'), ('rome', NULL)")
    return folder


@pytest.fixture(scope="session")
def service(lake):
    """The URL of a service of the lake, with a token that may make tables, as an upload does."""
    create = ["token", "create", "superset", "--role", "admin", "-i", lake, "--json"]
    said = subprocess.run([sys.executable, "-m", "lakebed", *create], check=True, capture_output=True, text=True).stdout
    serve = [sys.executable, "-m", "lakebed", "serve", "-i", lake, "--port", "0", "--in-process", "--no-maintenance"]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            found = next((found for line in process.stdout if (found := re.search(r"http://([\d.]+:\d+)", line))), None)
            assert found is not None, "the service ended before it said its address"
            yield f"lakebed+http://:{json.loads(said)['token']}@{found[1]}"
        finally:
            process.terminate()
            process.communicate(timeout=60)


class Superset:
    """Superset's REST API, as the administrator."""

    def __init__(self, client):
        self._client = client
        login = {"username": "admin", "password": "secret", "provider": "db", "refresh": True}
        token = client.post("/api/v1/security/login", json=login).json["access_token"]
        self._headers = {"Authorization": f"Bearer {token}"}

    def call(self, method, path, status=200, **options):
        """The body of a response, which must have this status: JSON, or text."""
        response = self._client.open(f"/api/v1/{path}", method=method, headers=self._headers, **options)
        assert response.status_code == status, response.get_data(as_text=True)
        return response.json if response.is_json else response.get_data(as_text=True)

    def sql(self, database, statement, status=200, **options):
        """What SQL Lab answers to a statement."""
        request = {"database_id": database, "sql": statement, "schema": "tables", "queryLimit": 1000} | options
        return self.call("POST", "sqllab/execute/", status, json=request)

    def chart(self, dataset, kind="full", form="json", **query):
        """The result of the one query of a chart."""
        query = {"columns": [], "metrics": [], "filters": [], "extras": {}, "orderby": [], "row_limit": 10_000} | query
        request = {
            "datasource": {"id": dataset, "type": "table"}, "force": True, "queries": [query], "result_type": kind,
            "result_format": form,
        }  # fmt: skip
        found = self.call("POST", "chart/data", json=request)
        return found["result"][0] if form == "json" else found


@pytest.fixture(scope="session")
def superset(tmp_path_factory):
    """An instance that was made by the commands of Superset's installation guide."""
    folder = tmp_path_factory.mktemp("superset")
    config = folder / "superset_config.py"
    config.write_text(CONFIG.format(folder=folder), "utf-8")
    os.environ |= {"SUPERSET_HOME": str(folder), "SUPERSET_CONFIG_PATH": str(config)}
    from superset.app import create_app
    from superset.cli.main import superset as commands

    app = create_app()
    person = ["--username", "admin", "--firstname", "A", "--lastname", "B", "--email", "a@b.c", "--password", "secret"]
    for command in (["db", "upgrade"], ["fab", "create-admin", *person], ["init"]):
        done = app.test_cli_runner().invoke(commands, command)
        assert done.exit_code == 0, done.output
    return Superset(app.test_client())


@pytest.fixture(scope="session", params=["folder", "service"])
def database(request, superset):
    """The number of a database in Superset."""
    if request.param == "folder":
        url = f"lakebed:///{request.getfixturevalue('lake')}"
    else:
        url = request.getfixturevalue("service")
    asked = {"database_name": request.param, "sqlalchemy_uri": url}
    assert superset.call("POST", "database/test_connection/", json=asked) == {"message": "OK"}
    asked |= {"expose_in_sqllab": True, "allow_dml": True, "allow_file_upload": True}
    return superset.call("POST", "database/", 201, json=asked)["id"]


@pytest.fixture(scope="session")
def dataset(superset, database):
    """The number of a dataset of ``sales``. In SQLite, Superset has one dataset of a name."""
    asked = {"database": database, "schema": "tables", "table_name": "sales"}
    made = superset.call("POST", "dataset/", 201, json=asked)["id"]
    yield made
    superset.call("DELETE", f"dataset/{made}")
