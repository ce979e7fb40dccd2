"""The version of the adapter, which dbt prints."""

version = "0.1.0"
