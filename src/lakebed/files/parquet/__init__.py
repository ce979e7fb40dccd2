"""Reading and writing of Parquet files: footers, pages, filters, open files."""
