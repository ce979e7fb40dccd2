"""The same through a service, which has its own process."""

import re
import subprocess
import sys

import pytest
from dbt.tests.adapter.basic.test_base import BaseSimpleMaterializations
from dbt.tests.adapter.basic.test_incremental import BaseIncremental
from dbt.tests.util import run_dbt

import lakebed


class Served:
    @pytest.fixture(scope="class")
    def instance_url(self, tmp_path_factory):
        """The URL of a service on a free port."""
        folder = str(tmp_path_factory.mktemp("lake") / "lake")
        lakebed.create(folder)
        command = [
            sys.executable,
            "-m",
            "lakebed",
            "serve",
            "-i",
            folder,
            "--port",
            "0",
            "--in-process",
            "--no-maintenance",
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as service:
            try:
                for line in service.stdout:
                    if found := re.search(r"http://[\d.]+:\d+", line):
                        yield found[0]
                        break
                else:
                    pytest.fail("the service ended before it said its address")
            finally:
                service.terminate()
                service.communicate(timeout=60)

    @pytest.fixture(scope="class")
    def project_config_update(self):
        return {"name": "served", "models": {"+primary_key": "id"}, "seeds": {"+primary_key": "id"}}


class TestSimpleMaterializations(Served, BaseSimpleMaterializations):
    pass


class TestIncremental(Served, BaseIncremental):
    pass


class TestMerge(Served):
    @pytest.fixture(scope="class")
    def models(self):
        sql = "{{ config(materialized='incremental') }} select 1 as id, {{ var('x', 1) }} as x"
        return {"one.sql": sql.replace("'incremental'", "'incremental', unique_key='id'")}

    def test_rows_are_merged(self, project):
        run_dbt(["run"])
        run_dbt(["run", "--vars", "x: 2"])
        assert project.run_sql("select id, x from {schema}.one", fetch="all") == [(1, 2)]
