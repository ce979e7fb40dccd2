"""Handles in other processes: what is pickled, what is opened again, and what a copy is."""

import copy
import multiprocessing
import pickle

import pyarrow as pa
import pytest

import lakebed
from lakebed import Schema, UsageError
from lakebed.clock import random_token
from lakebed.table.opening import OpenArguments


@pytest.fixture
def lake(tmp_path):
    made = lakebed.create(str(tmp_path / "lake"))
    made.create_table("t", Schema({"k": "int64"})).write(pa.table({"k": [1, 2]}))
    return made


def handles(lake):
    return lake, lake["t"], lake["t"].snapshot()


def facts(lake, table, snapshot):
    return lake.id, table.id, table.name, table.count().rows, snapshot.version, snapshot.to_arrow().num_rows


def test_handles_are_opened_again_in_another_process(lake):
    sent = handles(lake)
    lake["t"].write(pa.table({"k": [3]}))
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(facts, sent) == facts(*sent) == (lake.id, lake["t"].id, "t", 3, 2, 2)


def test_a_process_opens_an_address_once(lake):
    first, second = (pickle.loads(pickle.dumps(lake["t"])) for _ in range(2))
    assert first is second
    assert first is pickle.loads(pickle.dumps(lake)).table("t")


def test_a_table_is_found_by_its_id_under_any_name(lake):
    sent = pickle.dumps(lake["t"])
    lake.rename_table("t", "u")
    assert pickle.loads(sent).name == "u"
    lake.drop_table("u")
    with pytest.raises(lakebed.NotFoundError, match="it was dropped"):
        pickle.loads(sent)


def test_a_snapshot_that_is_sent_pins_nothing_and_stays_at_its_version(lake):
    before = sorted(found.name for found in lake.storage.list(""))
    sent = pickle.dumps(lake["t"].snapshot())
    assert pickle.loads(sent).version == 2
    assert sorted(found.name for found in lake.storage.list("")) == before
    lake["t"].write(pa.table({"k": [3]}))
    assert pickle.loads(sent).to_arrow().num_rows == 2


def test_options_are_sent_as_they_were_given_and_shown_nowhere(tmp_path):
    address = OpenArguments("s3://b/l", None, "http://h:1", (("secret_access_key", "hidden"),), "revealed")
    assert pickle.loads(pickle.dumps(address)) == address
    assert "hidden" not in repr(address)
    assert "revealed" not in repr(address)


def test_an_instance_in_memory_is_that_of_its_process():
    lake = lakebed.create(f"memory://{random_token()}")
    assert pickle.loads(pickle.dumps(lake)).id == lake.id
    elsewhere = OpenArguments(f"memory://{random_token()}", None, None, (), None)
    with pytest.raises(UsageError, match="in the memory of the process that made it"):
        elsewhere.instance()


def test_a_copy_of_a_handle_is_the_handle(lake):
    for handle in handles(lake):
        assert copy.copy(handle) is handle
        assert copy.deepcopy([handle]) == [handle]


def test_a_connected_instance_is_sent_with_its_url_and_token():
    lake = lakebed.connect("http://127.0.0.1:9", token="t", timeout_s=3.0)
    sent = pickle.loads(pickle.dumps(lake))
    assert (sent.url, sent._connection._headers) == (lake.url, lake._connection._headers)
