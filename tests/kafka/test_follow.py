"""Tables that follow topics of a real Kafka have the rows of the database behind them."""

from __future__ import annotations

import json
import random
from decimal import Decimal

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import NewPartitions

import lakebed
from lakebed.cli import main
from lakebed.errors import Code, StorageError
from lakebed.model.merge_modes import Latest
from lakebed.upkeep.follow.change_sources import SourceOptions, open_source
from lakebed.upkeep.follow.debezium_messages import PLACEHOLDER
from lakebed.upkeep.follow.follow_record import read_record
from lakebed.upkeep.follow.run import FollowOptions, SourceFollower
from tests.debezium import AvroWriter, JsonWriter, Table, decimal_schema, unscaled
from tests.followers import EndedError, Ending
from tests.kafka.broker import PASSWORD, USER
from tests.raising import raises
from tests.waiting import until

COLUMNS = {
    "id": {"type": "int32"},
    "name": {"type": "string"},
    "total": decimal_schema(10, 2),
    "at": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
}


class Shop:
    """A table of a shop, the connector that writes its changes to a topic, and what follows the topic."""

    def __init__(self, broker, writer, partitions=1, **config):
        self.broker, self.writer = broker, writer
        self.topic = f"shop{random.randrange(10**9)}.public.orders"
        self.table = Table(self.topic, ("id",), dict(COLUMNS))
        self.lake = lakebed.create(f"memory://{random.randrange(10**12)}")
        self.partitions = partitions
        self.options = SourceOptions()
        broker.make_topic(self.topic, partitions, **config)
        self.producer = broker.producer()
        self.rows = {}

    def send(self, key, value, partition=None):
        key = None if key is None else self.writer.key(self.table, key)
        where = {} if partition is None else {"partition": partition}
        self.producer.produce(self.topic, value, key, **where)

    def event(self, op, before, after):
        named = after or before
        self.send({"id": named["id"]}, self.writer.envelope(self.table, op, before, after))

    def put(self, number, name="a", total="1.00", op="c", **more):
        row = {"id": number, "name": name, "total": unscaled(Decimal(total)), "at": number * 1_000_000, **more}
        self.event(op, None, row)
        if name != PLACEHOLDER:
            self.rows[number] = name
        return row

    def delete(self, number):
        self.event("d", {"id": number, "name": None, "total": None, "at": None}, None)
        self.send({"id": number}, None)
        self.rows.pop(number)

    def follower(self, kind=SourceFollower, url=None, tables=(), **options):
        self.producer.flush()
        options = FollowOptions("shop", "dead", every_s=0.1, **options)
        source = open_source(url or self.broker.url(self.topic), "shop", tables, self.options)
        # The tests with brokers that do not answer, and with new partitions, would take a minute.
        source.answer_s, source.look_s = 5.0, 0.2
        return kind(self.lake, source, options)

    def caught_up(self, **options):
        return self.follower(**options).run(until_caught_up=True)

    def ended(self):
        with pytest.raises(EndedError):
            self.follower(kind=Ending).run(until_caught_up=True)

    def here(self, *columns, table="orders"):
        return self.lake[table].scan(columns=list(columns) or None).read_all().to_pylist()

    def check(self):
        assert {row["id"]: row["name"] for row in self.here("id", "name")} == self.rows

    def letters(self):
        return self.lake["dead"].scan().read_all().to_pylist() if "dead" in self.lake.tables() else []


@pytest.fixture(params=["schemas", "plain", "avro"])
def shop(request, broker, registry):
    if request.param == "avro":
        made = Shop(broker, AvroWriter(registry.schemas.register))
        made.options = SourceOptions(registry=registry.url)
        return made
    return Shop(broker, JsonWriter(schemas=request.param == "schemas"))


@pytest.fixture
def simple(broker):
    return Shop(broker, JsonWriter(schemas=True))


def test_events_of_every_kind_become_the_rows_of_the_source(shop):
    for number in range(5):
        shop.put(number, op="r")
    first = shop.caught_up()
    shop.check()
    shop.put(1, "changed", op="u")
    shop.delete(2)
    # The key of 3 changes.
    shop.delete(3)
    shop.put(30, "moved")
    second = shop.caught_up()
    shop.check()
    assert (first.changes, second.changes, second.dead_letters) == (5, 4, 0)
    if not isinstance(shop.writer, JsonWriter) or shop.writer.schemas:
        row = shop.lake["orders"].get(4).to_pylist()[0]
        assert (row["total"], row["at"].second) == (Decimal("1.00"), 4)
    assert shop.caught_up().changes == 0


def test_a_large_value_that_did_not_change_keeps_its_value(shop):
    shop.put(1, "large")
    shop.caught_up()
    shop.put(1, PLACEHOLDER, total="2.00", op="u")
    shop.put(2, "b")
    shop.caught_up()
    assert {row["id"]: row["name"] for row in shop.here("id", "name")} == {1: "large", 2: "b"}
    assert len({str(row["total"]) for row in shop.here("total")}) == 2


def test_a_follower_that_ends_before_it_recorded_its_commit_repeats_nothing(shop):
    for number in range(10):
        shop.put(number)
    shop.ended()
    versions = shop.lake["orders"].version
    assert shop.caught_up().changes == 0
    assert shop.lake["orders"].version == versions
    shop.check()


def test_new_columns_become_fields(shop):
    shop.put(1)
    shop.caught_up()
    shop.table.columns["paid"] = {"type": "boolean"}
    shop.put(2, paid=True)
    shop.caught_up()
    assert {row["id"]: row["paid"] for row in shop.here("id", "paid")} == {1: None, 2: True}


def test_a_wider_column_widens_its_field_and_another_type_stops_the_follower(simple):
    simple.table.columns["n"] = {"type": "int16"}
    simple.put(1, n=1)
    simple.caught_up()
    simple.table.columns["n"] = {"type": "int64"}
    simple.put(2, n=2**40)
    simple.caught_up()
    assert str(simple.lake["orders"].schema.by_name["n"].type) == "int64"
    simple.table.columns["n"] = {"type": "boolean"}
    simple.put(3, n=True)
    with raises(Code.SOURCE_CHANGE_UNSUPPORTED, "column n is now bool"):
        simple.caught_up()
    assert "column n is now bool" in read_record(simple.lake.storage, "shop").error


def test_another_key_stops_the_follower(simple):
    simple.put(1)
    simple.caught_up()
    simple.table.key = ("id", "name")
    simple.send({"id": 1, "name": "b"}, simple.writer.envelope(simple.table, "c", None, simple.put(1, "b")))
    with raises(Code.SOURCE_CHANGE_UNSUPPORTED, "row key are id"):
        simple.caught_up()


def test_foreign_messages_are_dead_letters_and_all_else_goes_on(shop):
    shop.put(1)
    shop.send({"id": 2}, b"hello")
    shop.producer.produce(shop.topic, b'{"ddl": "DROP TABLE x"}', b"7")
    shop.producer.produce(shop.topic, shop.writer.envelope(shop.table, "c", None, shop.put(3)), None)
    shop.put(4)
    report = shop.caught_up()
    assert (report.changes, report.dead_letters) == (3, 3)
    shop.check()
    letters = shop.letters()
    assert {one["target"] for one in letters} == {"orders"}
    assert [one["value"] for one in letters][:2] == [b"hello", b'{"ddl": "DROP TABLE x"}']
    assert "no key" in letters[2]["reason"]
    shop.ended()
    assert len(shop.letters()) == 3


def test_a_value_that_does_not_fit_its_field_is_a_dead_letter_with_the_message(simple):
    simple.put(1)
    row = {"id": 2, "name": "b", "total": unscaled(Decimal("123456789012.00")), "at": 1}
    simple.event("c", None, row)
    assert simple.caught_up().dead_letters == 1
    (letter,) = simple.letters()
    assert "column total" in letter["reason"]
    assert json.loads(letter["value"])["payload"]["after"]["id"] == 2
    assert letter["position"] == 1


def test_partitions_are_streams_of_one_table(broker):
    shop = Shop(broker, JsonWriter(schemas=True), partitions=3)
    for number in range(300):
        shop.put(number % 50, str(number))
    report = shop.caught_up()
    shop.check()
    assert report.changes == 300
    assert len(report.place[shop.topic].split()) == 3
    commits = [one for one in shop.lake["orders"].state().requests if one.startswith("follow kafka/")]
    assert all(one.count("@") <= 3 for one in commits)


def test_partitions_and_topics_that_are_new_are_found(broker):
    shop = Shop(broker, JsonWriter(schemas=True))
    shop.put(1)
    follower = shop.follower(url=broker.url(shop.topic.replace("orders", "*")))
    stop = []

    def done():
        if stop:
            return True
        if "orders" in shop.lake.tables() and len(shop.here()) == 1 and not shop.rows.get(2):
            for grown in broker.admin().create_partitions([NewPartitions(shop.topic, 2)]).values():
                grown.result()
            row = {"id": 2, "name": "b", "total": unscaled(Decimal(1)), "at": 1}
            until(lambda: len(broker.topics()[shop.topic].partitions) == 2)
            shop.producer = broker.producer()
            shop.send({"id": 2}, shop.writer.envelope(shop.table, "c", None, row), partition=1)
            shop.rows[2] = "b"
            other = shop.topic.replace("orders", "customers")
            broker.make_topic(other)
            table = Table(other, ("id",), {"id": {"type": "int32"}})
            value = shop.writer.envelope(table, "c", None, {"id": 7})
            shop.producer.produce(other, value, shop.writer.key(table, {"id": 7}))
            shop.producer.flush()
        return "customers" in shop.lake.tables() and len(shop.here()) == 2 and shop.here(table="customers")

    follower.run(stop=done)
    shop.check()
    assert shop.here(table="customers") == [{"id": 7}]


def test_several_topics_become_one_table_or_one_each(simple):
    broker, writer = simple.broker, simple.writer
    simple.put(1)
    for shard in ("a", "b"):
        topic = f"{simple.topic}.{shard}"
        table = Table(topic, ("id",), {"id": {"type": "int32"}})
        broker.make_topic(topic)
        simple.producer.produce(
            topic, writer.envelope(table, "c", None, {"id": ord(shard)}), writer.key(table, {"id": ord(shard)})
        )
    tables = [(f"{simple.topic}.a", "both"), (f"{simple.topic}.b", "both"), (simple.topic, "orders")]
    report = simple.follower(url=broker.url(""), tables=tables).run(until_caught_up=True)
    assert report.tables == ("both", "orders")
    assert {row["id"] for row in simple.here(table="both")} == {97, 98}
    with raises(Code.ARGUMENTS_CONFLICT, "would both become the table"):
        double = f"{simple.topic}x.a"
        broker.make_topic(double)
        simple.follower(url=broker.url(f"{simple.topic}.a,{double}")).run(until_caught_up=True)


def test_truncate_removes_the_rows_of_a_topic_with_one_partition(broker):
    for partitions in (1, 2):
        shop = Shop(broker, JsonWriter(schemas=True), partitions=partitions)
        shop.put(1)
        shop.caught_up()
        shop.send(None, shop.writer.envelope(shop.table, "t", None, None), partition=0)
        shop.put(2)
        report = shop.caught_up()
        assert {row["id"] for row in shop.here()} == ({2} if partitions == 1 else {1, 2})
        assert report.dead_letters == partitions - 1


def test_aborted_transactions_are_left_out_and_their_marks_are_no_messages(simple):
    producer = simple.broker.producer(**{"transactional.id": simple.topic})
    producer.init_transactions()
    plain, simple.producer = simple.producer, producer
    for number, end in (
        (1, producer.commit_transaction),
        (2, producer.abort_transaction),
        (3, producer.commit_transaction),
    ):
        producer.begin_transaction()
        simple.put(number)
        producer.flush()
        end()
    simple.rows.pop(2)
    simple.producer = plain
    report = simple.caught_up()
    simple.check()
    assert report.place == {simple.topic: "6"}
    assert read_record(simple.lake.storage, "shop").behind == 0


def test_no_snapshot_begins_with_what_comes_later(simple):
    simple.put(1)
    simple.caught_up(snapshot=False)
    assert "orders" not in simple.lake.tables()
    simple.put(2)
    simple.caught_up(snapshot=False)
    assert [row["id"] for row in simple.here()] == [2]
    taken = Shop(simple.broker, simple.writer)
    taken.lake.create_table(
        "orders", lakebed.Schema(row_key={"id": "int32"}, values={"name": "string"}), merge=Latest()
    )
    taken.put(1)
    taken.caught_up(snapshot=False)
    taken.put(2)
    taken.caught_up(snapshot=False)
    assert [row["id"] for row in taken.here()] == [2]


def test_offsets_that_are_deleted_are_an_error_with_a_remedy(broker):
    shop = Shop(broker, JsonWriter(schemas=True))
    shop.put(1)
    shop.caught_up()
    for number in range(10):
        shop.put(number, "later")
    shop.producer.flush()
    for deleted in broker.admin().delete_records([TopicPartition(shop.topic, 0, 5)]).values():
        deleted.result()
    with raises(Code.SOURCE_POSITION_LOST, "--resnapshot"):
        shop.caught_up()
    assert shop.caught_up(resnapshot=True).changes == 6
    assert {row["id"]: row["name"] for row in shop.here()} == dict.fromkeys(range(4, 10), "later")
    # The positions went back, and count.
    shop.put(99)
    assert shop.caught_up().changes == 1


def test_resnapshot_reads_a_topic_again_from_its_beginning(shop):
    for number in range(5):
        shop.put(number)
    shop.caught_up()
    shop.lake["orders"].remove(lakebed.KeyRange())
    assert shop.caught_up(resnapshot=True).changes == 5
    shop.check()
    assert shop.caught_up().changes == 0
    shop.delete(1)
    shop.caught_up()
    shop.check()


def test_a_topic_that_was_made_again_is_an_error_with_a_remedy(simple):
    for number in range(5):
        simple.put(number)
    simple.caught_up()
    simple.broker.drop_topic(simple.topic)
    simple.broker.make_topic(simple.topic)
    for number in range(10, 20):
        simple.put(number)
    with raises(Code.SOURCE_POSITION_LOST, "made again"):
        simple.caught_up()
    assert simple.caught_up(resnapshot=True).changes == 10


def test_a_table_that_was_dropped_begins_again(simple):
    simple.put(1)
    simple.caught_up()
    simple.lake.drop_table("orders")
    simple.put(2)
    simple.caught_up()
    simple.check()


def test_plain_rows_become_a_table(broker):
    shop = Shop(broker, JsonWriter(schemas=False))
    shop.options = SourceOptions(form="rows", key=("id",))
    for number, row in enumerate([{"id": 1, "n": 1}, {"id": 2, "n": 2.5, "tags": ["a"]}, {"id": 1, "n": 3}]):
        shop.producer.produce(shop.topic, json.dumps(row).encode(), str(row["id"]).encode())
        assert number < 3
    shop.producer.produce(shop.topic, None, b"2")
    shop.caught_up()
    assert [(row["id"], row["n"]) for row in shop.here()] == [(1, 3.0)]
    shop.producer.produce(shop.topic, b'{"id": 3, "n": "many"}', b"3")
    assert shop.caught_up().dead_letters == 1


def test_a_broker_that_crashes_is_connected_to_again(simple):
    simple.put(1)
    follower, step = simple.follower(), []

    def done():
        if "orders" in simple.lake.tables() and not step:
            simple.broker.stop()
            step.append("stopped")
        elif step == ["stopped"] and (read_record(simple.lake.storage, "shop").error or ""):
            simple.broker.start()
            simple.put(2)
            simple.producer.flush()
            step.append("started")
        return len(step) == 2 and len(simple.here()) == 2

    follower.run(stop=done)
    simple.check()


# -- bad input ---------------------------------------------------------------------------------------------------------


def test_a_missing_topic_names_those_that_are_there(simple):
    with raises(Code.SOURCE_NOT_FOUND, "no topic nothing"):
        simple.follower(url=simple.broker.url("nothing")).run(until_caught_up=True)


def test_a_broker_that_is_none_is_tried_again_and_given_up(simple):
    with pytest.raises(StorageError, match=r"is there a broker at 127\.0\.0\.1:1"):
        simple.follower(url="kafka://127.0.0.1:1/t").run(until_caught_up=True)


def test_a_password_is_taken_from_the_file_and_a_wrong_one_is_refused_at_once(simple, tmp_path):
    simple.put(1)
    url = f"kafka://127.0.0.1:{simple.broker.sasl}/{simple.topic}"
    config = tmp_path / "client.properties"
    simple.options = SourceOptions(config=str(config))
    settings = f"# how to connect\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username={USER}\n"
    config.write_text(settings + "sasl.password=wrong")
    with raises(Code.SOURCE_UNREADABLE, "sasl.password"):
        simple.follower(url=url).run(until_caught_up=True)
    config.write_text(settings + f"sasl.password={PASSWORD}")
    assert simple.follower(url=url).run(until_caught_up=True).changes == 1
    config.write_text("sasl.jaas.config=org.apache.kafka")
    with raises(Code.ARGUMENT_INVALID, "sasl.jaas.config"):
        simple.follower(url=url).run(until_caught_up=True)
    config.write_text("nonsense")
    with raises(Code.ARGUMENT_INVALID, "line 1"):
        simple.follower(url=url)


@pytest.fixture
def avro(broker, registry):
    made = Shop(broker, AvroWriter(registry.schemas.register))
    made.options = SourceOptions(registry=registry.url)
    return made


def test_a_registry_that_is_gone_is_tried_again_and_nothing_is_skipped(avro, registry):
    avro.put(1)
    registry.down = True
    follower = avro.follower()

    def done():
        record = read_record(avro.lake.storage, "shop")
        if registry.down and record is not None and record.error:
            assert "does not answer" in record.error or "answers what is no schema" in record.error
            registry.down = False
        return "orders" in avro.lake.tables() and len(avro.here()) == 1

    follower.run(stop=done)
    avro.check()
    assert avro.letters() == []


def test_a_registry_with_a_password_takes_that_of_the_file(avro, registry, tmp_path):
    registry.password = "of the registry"
    avro.put(1)
    with raises(Code.SOURCE_UNREADABLE, "user.info"):
        avro.caught_up()
    config = tmp_path / "client.properties"
    config.write_text(
        f"schema.registry.url={registry.url}\nschema.registry.basic.auth.user.info={USER}:{registry.password}\n"
    )
    avro.options = SourceOptions(config=str(config))
    avro.caught_up()
    avro.check()


def test_a_wrong_registry_is_an_error_and_an_unknown_schema_later_a_dead_letter(avro, registry):
    avro.put(1)
    texts, registry.schemas.texts = registry.schemas.texts, []
    with raises(Code.SOURCE_UNREADABLE, "is it the registry of this topic"):
        avro.caught_up()
    registry.schemas.texts = texts
    avro.producer.produce(avro.topic, b"\0\0\0\0\x63\0", avro.writer.key(avro.table, {"id": 9}))
    avro.put(2)
    report = avro.caught_up()
    assert (report.changes, report.dead_letters) == (2, 1)
    assert "has no schema 99" in avro.letters()[0]["reason"]
    avro.options = SourceOptions()
    avro.put(3)
    with raises(Code.ARGUMENT_INVALID, "--registry"):
        avro.caught_up()


def test_the_command_follows_and_the_status_has_the_lag(simple, tmp_path, capsys):
    simple.put(1)
    simple.producer.flush()
    lake = str(tmp_path / "lake")
    lakebed.create(lake)
    words = ["follow", simple.broker.url(simple.topic), "--name", "shop", "--until-caught-up", "-i", lake]
    assert main([*words, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["changes"], document["place"]) == (1, {simple.topic: "1"})
    assert main(["status", "-i", lake]) == 0
    assert f"up to {simple.topic} 1" in capsys.readouterr().out
    assert main([*words, "--publication", "p"]) == 2
    assert "--publication is not an option of Kafka" in capsys.readouterr().err
