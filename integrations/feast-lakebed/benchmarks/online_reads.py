"""Online reads of 100 entities by Feast, while another process writes to the same table.

    python benchmarks/online_reads.py [--entities 200000] [--seconds 20]

Prints the latencies of ``online_read`` and of ``get_online_features``, in milliseconds, with the load of the machine.
The writer adds batches of 1,000 rows, and compacts the table now and then, as a service does.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
from feast import Entity, FeatureStore, FeatureView, Field, RepoConfig
from feast.protos.feast.types.EntityKey_pb2 import EntityKey
from feast.protos.feast.types.Value_pb2 import Value
from feast.types import Float64, Int64, String
from feast.value_type import ValueType
from feast_lakebed import LakebedOfflineStoreConfig, LakebedOnlineStoreConfig, LakebedSource

import lakebed

FIELDS = [Field(name=f"f{n}", dtype=Float64) for n in range(8)] + [Field(name="city", dtype=String)]


def store_in(folder):
    url = str(folder / "lake")
    config = RepoConfig(
        project="bench",
        provider="local",
        registry=str(folder / "registry.db"),
        repo_path=folder,
        online_store=LakebedOnlineStoreConfig(url=url),
        offline_store=LakebedOfflineStoreConfig(url=url),
        entity_key_serialization_version=3,
    )
    return FeatureStore(config=config)


def batch(users, at):
    rows = []
    for user in users:
        values = {f"f{n}": Value(double_val=user / (n + 1)) for n in range(8)} | {"city": Value(string_val="Bern")}
        rows.append((EntityKey(join_keys=["user_id"], entity_values=[Value(int64_val=user)]), values, at, None))
    return rows


def write(folder, entities, seconds):
    """Write batches for some time; runs in a process of its own."""
    store = store_in(folder)
    view = store.get_feature_view("profile")
    pipeline = lakebed.Pipeline(lakebed.open(str(folder / "lake")))
    end, number = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        number += 1
        users = random.sample(range(entities), 1_000)
        store._get_provider().online_write_batch(store.config, view, batch(users, datetime.now(UTC)), None)
        if number % 20 == 0:
            pipeline.maintain("bench_profile")
    print(f"the writer committed {number} batches of 1,000 rows")


def measure(entities, seconds):
    folder = Path(tempfile.mkdtemp(prefix="feast-bench-"))
    lake = lakebed.create(str(folder / "lake"))
    lake.create_table("events", lakebed.Schema(row_key={"user_id": "int64"}, values={"at": "timestamp[us, tz=UTC]"}))
    store = store_in(folder)
    user = Entity(name="user", join_keys=["user_id"], value_type=ValueType.INT64)
    source = LakebedSource(table="events", timestamp_field="at")
    schema = [Field(name="user_id", dtype=Int64), *FIELDS]
    view = FeatureView(name="profile", entities=[user], schema=schema, source=source, ttl=timedelta(days=1))
    store.apply([user, view])
    for start in range(0, entities, 50_000):
        users = range(start, min(start + 50_000, entities))
        store._get_provider().online_write_batch(store.config, view, batch(users, datetime.now(UTC)), None)
    online = store._get_provider().online_store
    names = [f"profile:{one.name}" for one in FIELDS]
    command = [sys.executable, __file__, "--write", str(folder), "--entities", str(entities), "--seconds", str(seconds)]
    taken = {"online_read": [], "get_online_features": []}
    with subprocess.Popen(command) as writer:
        while writer.poll() is None:
            users = random.sample(range(entities), 100)
            keys = [EntityKey(join_keys=["user_id"], entity_values=[Value(int64_val=one)]) for one in users]
            began = time.perf_counter()
            rows = online.online_read(store.config, view, keys)
            between = time.perf_counter()
            store.get_online_features(names, {"user_id": users})
            taken["online_read"].append(between - began)
            taken["get_online_features"].append(time.perf_counter() - between)
            assert all(values is not None for _, values in rows)
    for what, times in taken.items():
        p50, p99 = np.percentile(np.array(times) * 1_000, [50, 99])
        print(f"{what}: {len(times)} reads of 100 entities, p50 {p50:.2f} ms, p99 {p99:.2f} ms")
    print(f"{entities} entities, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", type=Path)
    parser.add_argument("--entities", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    if given.write:
        write(given.write, given.entities, given.seconds)
    else:
        measure(given.entities, given.seconds)
