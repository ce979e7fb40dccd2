"""Executors whose Python has no Lakebed: it is sent along in a packed environment, or missed.

As a zip it is sent along in :mod:`tests.cluster.test_cluster`.
"""

from __future__ import annotations

import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakebed
from tests.cluster.conftest import TIMEOUT_S, Cluster, Store, reported, site_packages

ROWS = pa.table({"k": ["b", "a", "c"], "n": [2, 1, 3]})


def imported(cluster: Cluster, store: Store, tmp_path: Path, *words: str, **variables: str) -> dict:
    """The report of an import whose driver is started with these words."""
    instance = lakebed.create(store.url, storage_options=store.options)
    instance.create_table("t", lakebed.Schema({"k": "string"}, {}, {"n": "int64"}))
    pq.write_table(ROWS, tmp_path / "in.parquet")
    # Neither the settings of the other tests nor their path says where Lakebed is.
    (tmp_path / "none.properties").touch()
    report = tmp_path / "report.json"
    process = cluster.submit(
        *words, command=("import", "t", str(tmp_path / "in.parquet")), report=report, store=store,
        properties=tmp_path / "none.properties", PYTHONPATH="", **variables,
    )  # fmt: skip
    found = (process.wait(TIMEOUT_S), reported(report))
    assert found[0] == found[1]["exit_code"]
    return found[1]


@pytest.mark.slow
def test_a_packed_environment_is_unpacked_beside_each_executor(
    cluster: Cluster, store: Store, wheel: Path, bare: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site_packages(bare))
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as packed:
        packed.add(bare, ".")
    words = ("--archives", f"{tmp_path}/environment.tar.gz#environment")
    driver, tasks = str(bare / "bin" / "python"), "./environment/bin/python"
    found = imported(cluster, store, tmp_path, *words, PYSPARK_DRIVER_PYTHON=driver, PYSPARK_PYTHON=tasks)
    assert found["report"]["rows"] == 3


@pytest.mark.slow
def test_executors_without_lakebed_are_an_error_that_says_so(
    cluster: Cluster, store: Store, wheel: Path, bare: Path, tmp_path: Path
) -> None:
    python = str(bare / "bin" / "python")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "driver")
    (tmp_path / "site.sh").write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/driver:"$PYTHONPATH" exec {python} "$@"\n')
    (tmp_path / "site.sh").chmod(0o755)
    driver = str(tmp_path / "site.sh")
    found = imported(cluster, store, tmp_path, PYSPARK_DRIVER_PYTHON=driver, PYSPARK_PYTHON=python)
    assert found["error"]["kind"] == "usage"
    assert "the Python that runs Spark's tasks has no lakebed: install" in found["error"]["message"]
