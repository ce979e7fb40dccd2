"""An inbox of small files, a row for each letter, and an ingest that runs its tasks in this process."""

import tempfile
from pathlib import Path

import pyarrow.parquet as pq

from lakebed.errors import Error
from lakebed.upkeep.ingest_jobs import ingest, prepare, run_ingest_task
from tests.tables.retention.cases import rows


def put(folder, *texts):
    """A file for each text, named by it; returns their paths."""
    folder.mkdir(exist_ok=True)
    paths = [folder / f"{text}.parquet" for text in texts]
    for path, text in zip(paths, texts, strict=True):
        pq.write_table(rows(text), path)
    return [str(path) for path in paths]


def in_process(table):
    """Runs tasks one after another, here."""

    def execute(tasks):
        made = []
        for task in tasks:
            with tempfile.TemporaryDirectory() as scratch:
                try:
                    made.append(run_ingest_task(task, table.storage, Path(scratch)))
                except Error as error:
                    made.append(error)
        return made

    return execute


def ingested(table, execute=None, *, force=True, **settings):
    """The report of an ingest of what is due; by default of everything."""
    return ingest(table, prepare(table, force=force), execute or in_process(table), cores=1)


def standings(report):
    """``a open, b submitted``: what a submission said of each file."""
    return ", ".join(f"{Path(file.url).stem} {file.standing}" for file in report.files)
