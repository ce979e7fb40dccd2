"""Followers of topics that services run go on whatever is killed."""

from __future__ import annotations

import json
import random

from lakebed.cli import main
from tests.debezium import JsonWriter, Table
from tests.followers import SERVICE_OPTIONS, holder_of
from tests.service.served import served
from tests.waiting import until


def test_a_service_follows_topics_and_neither_kill_loses_or_doubles_a_message(broker, lake, tmp_path, capsys):
    topic = f"bank{random.randrange(10**9)}.public.accounts"
    broker.make_topic(topic, 2)
    table = Table(topic, ("id",), {"id": {"type": "int32"}, "n": {"type": "int64"}})
    writer, producer, sent = JsonWriter(schemas=True), broker.producer(), 0

    def send(count):
        nonlocal sent
        for _ in range(count):
            sent += 1
            row = {"id": sent, "n": sent}
            producer.produce(topic, writer.envelope(table, "c", None, row), writer.key(table, {"id": sent}))
        producer.flush()

    def arrive():
        wanted = list(range(1, sent + 1))
        until(lambda: "accounts" in lake.tables())
        until(lambda: sorted(lake["accounts"].scan(columns=["id"]).read_all()["id"].to_pylist()) == wanted)
        changes = lake["accounts"].changes(0).read_all().to_pylist()
        assert sorted((one["id"], one["_change"]) for one in changes) == [(number, "insert") for number in wanted]

    settings = tmp_path / "client.properties"
    settings.write_text("socket.keepalive.enable=true\n", "utf-8")
    words = ["--instance", lake.storage.url, "--json", "follow"]
    options = ["--name", "bank", "--every", "0.05"]
    assert main([*words, "create", broker.url(topic), *options, "--source-config", "client.properties"]) == 2
    assert "give its absolute path" in capsys.readouterr().err
    assert main([*words, "create", broker.url(topic), *options, "--source-config", str(settings)]) == 0
    assert json.loads(capsys.readouterr().out) == {"name": "bank", "url": broker.url(topic)}
    send(10)
    with served(lake.storage.url, *SERVICE_OPTIONS) as service:
        arrive()
        holder_of(lake.storage, "bank").kill()
        send(10)
        arrive()
        send(10)
        service.process.kill()
        service.process.wait()
    send(10)
    with served(lake.storage.url, *SERVICE_OPTIONS):
        arrive()
