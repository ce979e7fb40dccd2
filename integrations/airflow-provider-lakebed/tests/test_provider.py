"""Airflow finds the provider, its connection and the fields of its form; the hook speaks for a connection."""

import json
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowException
from airflow_lakebed import get_provider_info
from airflow_lakebed.hooks import LakebedHook
from airflow_lakebed.operators import LakebedExportOperator, LakebedMaintainOperator
from airflow_lakebed.triggers import QueryTrigger, RequestsTrigger


def test_airflow_knows_the_connection_and_the_fields_of_its_form():
    from airflow.providers_manager import ProvidersManager

    manager = ProvidersManager()
    # Airflow adds the URL of its own documentation.
    assert manager.providers["airflow-provider-lakebed"].data.items() >= get_provider_info().items()
    assert manager.hooks["lakebed"].hook_class_name == "airflow_lakebed.hooks.LakebedHook"
    assert {name for name in manager.connection_form_widgets if "lakebed" in name} == {
        f"extra__lakebed__{name}" for name in ("storage_options", "memory_limit_bytes", "timeout_s")
    }
    assert manager.field_behaviours["lakebed"]["relabeling"] == {"host": "URL", "password": "Token"}


def test_the_provider_is_described_as_airflow_requires():
    import airflow
    import jsonschema

    schema = json.loads((Path(airflow.__path__[0]) / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_rows_are_inserted_and_read_by_the_hook(lake, connect):
    connect(lake.url, extra=json.dumps({"timeout_s": 600, "storage_options": {}}))
    hook = LakebedHook()
    assert hook.test_connection() == (True, "Connection successfully tested")
    hook.insert_rows("events", [(1, 1.5), (2, None)], target_fields=["id", "amount"])
    assert hook.get_records("SELECT id, amount FROM events WHERE id < ? ORDER BY id", [3]) == [(1, 1.5), (2, None)]
    assert hook.get_first("SELECT count(*) FROM events") == (2,)
    with hook.instance() as found:
        assert found.table("events").get(2).num_rows == 1


@pytest.mark.parametrize("url", ["", None])
def test_a_connection_without_a_url_is_refused(connect, url):
    connect(url)
    with pytest.raises(AirflowException, match="'lakebed_default' has no URL"):
        LakebedHook().get_conn()
    assert not LakebedHook().test_connection()[0]


def test_a_token_goes_to_a_service_only(lake, connect):
    connect(lake.url, password="secret")
    assert "token with a store" in LakebedHook().test_connection()[1]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LakebedExportOperator(task_id="t", url="out"), "give table or sql"),
        (lambda: LakebedExportOperator(task_id="t", url="out", table="a", sql="b"), "give table or sql"),
        (lambda: LakebedExportOperator(task_id="t", url="out", sql="b", where="c"), "go with table"),
        (lambda: LakebedMaintainOperator(task_id="t", operation="vacuum"), "must be one of maintain"),
        (lambda: LakebedMaintainOperator(task_id="t", strategy="full"), "it goes with compact"),
    ],
)
def test_arguments_that_exclude_each_other_are_refused_when_the_dag_is_read(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_triggers_are_made_anew_from_what_is_stored():
    for trigger in (
        QueryTrigger(lakebed_conn_id="c", query_id="q", poll_s=2.0),
        RequestsTrigger(lakebed_conn_id="c", table="t", requests=["r"], poll_s=3.0),
    ):
        name, arguments = trigger.serialize()
        assert name == f"airflow_lakebed.triggers.{type(trigger).__name__}"
        assert type(trigger)(**arguments).serialize() == (name, arguments)
