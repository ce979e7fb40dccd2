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
from lakebed.spark import Pipeline, Submit
from tests.cluster.conftest import SPARK_HOME, Cluster, site_packages

ROWS = pa.table({"k": ["b", "a", "c"], "n": [2, 1, 3]})


def imported(cluster: Cluster, tmp_path: Path, *words: str, **variables: str) -> int:
    """The rows of an import whose driver is submitted with these words."""
    cluster.stop_driver()
    instance = lakebed.create(tmp_path / "lake")
    table = instance.create_table("t", lakebed.Schema({"k": "string"}, {}, {"n": "int64"}))
    pq.write_table(ROWS, tmp_path / "in.parquet")
    submit = str(SPARK_HOME / "bin" / "spark-submit")
    # Neither the settings of the other tests nor their path says where Lakebed is.
    (tmp_path / "conf").mkdir()
    nothing = {"SPARK_CONF_DIR": str(tmp_path / "conf"), "PYTHONPATH": ""}
    with cluster.surroundings(**nothing, **variables):
        pipeline = Pipeline(instance, launcher=Submit((submit, "--master", cluster.url, *words)))
        pipeline.bulk_import("t", tmp_path / "in.parquet")
    return table.scan().read_all().num_rows


@pytest.mark.slow
def test_a_packed_environment_is_unpacked_beside_each_executor(
    cluster: Cluster, wheel: Path, bare: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(site_packages(bare))
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as packed:
        packed.add(bare, ".")
    words = ("--archives", f"{tmp_path}/environment.tar.gz#environment")
    driver, tasks = str(bare / "bin" / "python"), "./environment/bin/python"
    assert imported(cluster, tmp_path, *words, PYSPARK_DRIVER_PYTHON=driver, PYSPARK_PYTHON=tasks) == 3


@pytest.mark.slow
def test_executors_without_lakebed_are_an_error_that_says_so(
    cluster: Cluster, wheel: Path, bare: Path, tmp_path: Path
) -> None:
    python = str(bare / "bin" / "python")
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(tmp_path / "driver")
    (tmp_path / "site.sh").write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path}/driver:"$PYTHONPATH" exec {python} "$@"\n')
    (tmp_path / "site.sh").chmod(0o755)
    with pytest.raises(lakebed.UsageError, match="the Python that runs Spark's tasks has no lakebed: install"):
        imported(cluster, tmp_path, PYSPARK_DRIVER_PYTHON=str(tmp_path / "site.sh"), PYSPARK_PYTHON=python)
