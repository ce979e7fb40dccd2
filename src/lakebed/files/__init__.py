"""The bytes of files: Parquet, the files of other programs, sorted runs, and merged rows."""
