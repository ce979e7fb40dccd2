"""The object gateway: tables as a read-only bucket of Parquet files, for whatever reads S3."""
