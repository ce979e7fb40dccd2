"""Mistakes in Python: a heading, and statements with ``lakebed``, ``lake``, ``table`` (readings), ``pa`` at hand."""

MISTAKES = {
    "Opening": [
        "lakebed.open('nowhere')",
        "lakebed.open('readings.parquet')",
        "lakebed.create('lake')",
        "lake.table('reading')",
    ],
    "Reading": [
        "table.get('Ulm')",
        "table.get('Ulm', '1')",
        "table.get('Ulm', 1, columns=['raeding'])",
        "table.at(version=99)",
        "table.at(tag='mondya')",
    ],
    "Writing": [
        "table.write(pa.table({'place': ['Ulm']}))",
        "table.write(42)",
    ],
}
