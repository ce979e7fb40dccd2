"""Parquet files as Lakebed reads and writes them: footers, pages, filters, open files."""
