"""Lakebed in Apache Airflow: a type of connection, a hook, operators, and triggers that wait for a service."""

from importlib.metadata import version
from typing import Any

__all__ = ["get_provider_info"]


def get_provider_info() -> dict[str, Any]:
    """Return what Airflow asks of a provider: its connection, with the fields of the form, and its modules."""
    name = "airflow-provider-lakebed"
    modules = {"integration-name": "Lakebed"}
    return {
        "package-name": name,
        "name": "Lakebed",
        "description": "Tables of Lakebed: very large, sorted, on object storage.",
        "versions": [version(name)],
        "integrations": [{"integration-name": "Lakebed", "tags": ["software"]}],
        "hooks": [modules | {"python-modules": ["airflow_lakebed.hooks"]}],
        "operators": [modules | {"python-modules": ["airflow_lakebed.operators"]}],
        "triggers": [modules | {"python-modules": ["airflow_lakebed.triggers"]}],
        "connection-types": [
            {
                "connection-type": "lakebed",
                "hook-class-name": "airflow_lakebed.hooks.LakebedHook",
                "hook-name": "Lakebed",
                "ui-field-behaviour": {
                    "hidden-fields": ["login", "port", "schema"],
                    "relabeling": {"host": "URL", "password": "Token"},
                    "placeholders": {
                        "host": "/data/lake, s3://bucket/lake, gs://…, az://…, or https://host:8017 of a service",
                        "password": "of a service that requires tokens",
                        "extra": "",
                    },
                },
                "conn-fields": {
                    "storage_options": {
                        "label": "Storage options",
                        "description": "Of a store: region, endpoint, keys, as a JSON object of texts",
                        "schema": {"type": ["object", "null"]},
                    },
                    "memory_limit_bytes": {
                        "label": "Memory of a statement (bytes)",
                        "schema": {"type": ["integer", "null"], "minimum": 1},
                    },
                    "timeout_s": {
                        "label": "Time of a statement (seconds)",
                        "schema": {"type": ["number", "null"], "minimum": 0},
                    },
                },
            }
        ],
    }
