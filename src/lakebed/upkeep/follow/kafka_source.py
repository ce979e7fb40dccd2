"""Kafka as a source of changes: topics of Debezium's envelopes, or of plain rows.

Each partition of a topic is a stream, and its positions are offsets. They are kept in the commit ids of the tables: the
partitions are assigned by hand, and no consumer group is joined. A table without a position is read from the beginning
of its topic, where Debezium put its snapshot. Transactions that were aborted are left out (``read_committed``).

Offsets that the follower needs and that the topic has not any more were deleted by its retention, or the topic was
deleted and made again, which its id says: changes are missing, and the follower stops.

Core types: :class:`KafkaSource`. Errors: StorageError (``source_unreadable``) for brokers that do not answer or refuse,
``source_not_found`` for a topic, ``source_position_lost`` for offsets that are gone.

Source: docs/follow.md; librdkafka, "CONFIGURATION.md".
"""

from __future__ import annotations

import fnmatch
import logging
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import xxhash
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.model.checks import REQUEST_KEY_CHARACTERS_MAX
from lakebed.upkeep.follow.change_source import DeadLetter, Lag, RecordedSource, SourceProgress
from lakebed.upkeep.follow.debezium_messages import Effect, ForeignMessageError, Format, MessageDecoder
from lakebed.upkeep.follow.kafka_rows import MessageOrigin, TopicRows
from lakebed.upkeep.follow.positions import GROUP, commit_id
from lakebed.upkeep.follow.schema_registry import SchemaRegistry, UnknownSchemaError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lakebed.upkeep.follow.change_source import Following
    from lakebed.upkeep.follow.change_sources import SourceOptions
    from lakebed.upkeep.follow.target import ChangeTarget, SourceColumns

ANSWER_S = 10.0
"""How long a broker may take to answer, and how long all of them may be away while nothing arrives."""

LOOK_S = 30.0
"""Between two looks for new partitions and topics."""

POLL_S = 0.1
MESSAGES_MAX = 2_000
UNCONVERTED_BYTES_MAX = 8 * 1024 * 1024

PREFETCHED_KIB = 16 * 1024
"""What the client may hold before the follower takes it; then it reads no more."""

REGISTRY_URL, REGISTRY_USER = "schema.registry.url", "schema.registry.basic.auth.user.info"

_OFFSET_MAX = 10**13
_REFUSED = frozenset({
    KafkaError._AUTHENTICATION,  # noqa: SLF001 - these codes of the client begin so
    KafkaError._SSL,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
})  # fmt: skip


@dataclass(slots=True)
class _Topic:
    """A topic, the table that takes its changes, and its partitions."""

    name: str
    here: str
    number: int
    rows: TopicRows
    decoder: MessageDecoder
    partitions: int = 0
    decoded: bool = False
    last_delete: dict[int, bytes | None] = field(default_factory=dict)


_LOG = logging.getLogger("lakebed.follow")
# What the client says of each attempt to connect is for logs: without a handler Python would write it to stderr.
_LOG.addHandler(logging.NullHandler())


def stream_of(topic: str, partition: int) -> int:
    """Return the number of the stream of a partition, which depends on nothing else."""
    return (xxhash.xxh32_intdigest(topic.encode()) >> 1 or 1) * GROUP + partition


def read_settings(file: str | None) -> dict[str, Any]:
    """Return the settings of a file with lines ``NAME=VALUE``, by name; none without a file. Raises UsageError."""
    if file is None:
        return {}
    try:
        lines = Path(file).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise Code.ARGUMENT_INVALID(f"--source-config {file} cannot be read: {error}") from error
    found: dict[str, Any] = {}
    for number, line in enumerate(map(str.strip, lines), 1):
        if line and not line.startswith("#"):
            name, equals, value = line.partition("=")
            if not equals:
                raise Code.ARGUMENT_INVALID(f"--source-config {file}, line {number}: is not NAME=VALUE")
            found[name.strip()] = value.strip()
    return found


class KafkaSource:
    """Topics of a cluster.

    ``tables`` are pairs of a topic and a table. The topics of the URL, which may have wildcards, become tables with the
    last part of their names.
    """

    def __init__(
        self,
        url: str,
        name: str,
        tables: Sequence[tuple[str, str]],
        options: SourceOptions,
    ) -> None:
        self.url = url
        self.id = ""
        self.answer_s, self.look_s = ANSWER_S, LOOK_S
        self._name = name
        parts = urlsplit(url)
        if "@" in parts.netloc or not parts.netloc:
            raise Code.ARGUMENT_INVALID(
                f"kafka://{parts.netloc.rpartition('@')[2]}: must be kafka://HOST:PORT/TOPIC; a user and a password "
                "belong to the file of --source-config, as sasl.username and sasl.password"
            )
        self._brokers = parts.netloc
        self._tables = dict(tables)
        self._wanted = [unquote(one) for one in parts.path.strip("/").split(",") if one] or [*self._tables]
        if not self._wanted:
            raise Code.ARGUMENT_INVALID(f"{url}: names no topic: write kafka://HOST:PORT/TOPIC, or --table TOPIC=TABLE")
        self._options = options
        settings = read_settings(options.config)
        registry = options.registry or settings.pop(REGISTRY_URL, None)
        user = settings.pop(REGISTRY_USER, None)
        self._registry = None if registry is None else SchemaRegistry(registry, user)
        self._settings = settings
        self._consumer: Consumer | None = None
        self._following: Following | None = None
        self._known = RecordedSource({})
        self._topics: dict[str, _Topic] = {}
        self._identities: dict[str, str] = {}
        self._read: dict[int, int] = {}
        self._read_ms = 0
        self._unconverted = 0
        self._looked_s = self._answered_s = 0.0
        self._failed: KafkaError | None = None

    # -- begin and end -----------------------------------------------------------------------------------------------

    def open(self, following: Following) -> None:
        """Connect, and assign all partitions at the positions of their tables."""
        self.close()
        self._following = following
        self._topics, self._read, self._identities, self._failed = {}, {}, {}, None
        self._unconverted = 0
        self._consumer = self._client(Consumer)
        with self._answers():
            metadata = self._metadata()
            self.id = f"kafka/{metadata.cluster_id or 'unknown'}/{self._name}"
            self._known = following.prepared(self.id)
            found = self._followed(metadata)
            self._check_identities([topic for topic, _ in found])
            for topic, here in found:
                self._add_topic(topic, here, len(metadata.topics[topic].partitions))
            self._check_partitions()
            following.record(dict(self._read))
            self._assign()

    def _client(self, kind: Any) -> Any:
        settings = {
            "group.id": f"lakebed-{self._name}",
            "client.id": f"lakebed-{self._name}",
            "queued.max.messages.kbytes": PREFETCHED_KIB,
            **self._settings,
            "bootstrap.servers": self._brokers,
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "error_cb": self._note_error,
        }
        if kind is AdminClient:
            shared = ("bootstrap.servers", "client.id", "error_cb", *self._settings)
            settings = {name: one for name, one in settings.items() if name in shared and name != "group.id"}
        try:
            return kind(settings, logger=_LOG)
        except (KafkaException, TypeError, ValueError) as error:
            raise Code.ARGUMENT_INVALID(
                f"{self.url}: the client of Kafka does not take its settings: {error}. The file of --source-config has "
                "lines NAME=VALUE with the names of librdkafka, such as security.protocol, sasl.mechanism, "
                "sasl.username and sasl.password"
            ) from error

    def _metadata(self) -> Any:
        assert self._consumer is not None
        found = self._consumer.list_topics(timeout=self.answer_s)
        self._looked_s = clock.monotonic_s()
        return found

    def _followed(self, metadata: Any) -> list[tuple[str, str]]:
        """Return the topics that are followed, with their tables."""
        there = sorted(name for name, one in metadata.topics.items() if one.error is None)
        found: dict[str, str] = {}
        for wanted in self._wanted:
            own = [name for name in there if not name.startswith("__")]
            names = [wanted] if wanted in there else [name for name in own if fnmatch.fnmatchcase(name, wanted)]
            if not names:
                shown = ", ".join(own) or "none"
                raise Code.SOURCE_NOT_FOUND(f"{self.url}: no topic {wanted}. There are: {shown[:1_000]}", url=self.url)
            found |= {name: self._tables.get(name) or name.rpartition(".")[2] for name in names}
        for topic, here in found.items():
            other = next(one for one, table in found.items() if table == here)
            if other != topic and not {topic, other} <= self._tables.keys():
                raise Code.ARGUMENTS_CONFLICT(
                    f"the topics {other} and {topic} would both become the table {here}: name their tables with "
                    f"--table {topic}=TABLE"
                )
        return list(found.items())

    def _check_identities(self, topics: list[str]) -> None:
        """Raise UsageError if a topic is not the one that was followed."""
        client = self._client(AdminClient)
        for name, answer in client.describe_topics(TopicCollection(topics), request_timeout=self.answer_s).items():
            self._identities[name] = str(answer.result().topic_id)
        for name, identity in self._identities.items():
            known = self._known.identities.get(name)
            if known is not None and known != identity:
                raise self._lost(f"topic {name} was deleted and made again")

    def _add_topic(self, name: str, here: str, partitions: int) -> None:
        assert self._following is not None
        following = self._following
        target = following.targets.get(here) or following.existing(here)
        registered = self._no_registry if self._registry is None else self._registry.schema
        topic = _Topic(
            name,
            here,
            stream_of(name, 0) // GROUP,
            TopicRows(name, target, lambda columns: self._made(here, columns), lambda *one: self._reject(here, *one)),
            MessageDecoder(Format(self._options.form or Format.DEBEZIUM), self._options.key, registered),
        )
        if any(one.number == topic.number for one in self._topics.values()):
            raise Code.SOURCE_UNSUPPORTED(f"{self.url}: topic {name} has the number of another one; rename it")
        self._topics[name] = topic
        self._add_partitions(topic, target, partitions)

    def _made(self, here: str, columns: SourceColumns) -> ChangeTarget:
        """Return the table of a topic that had none, with the first columns."""
        assert self._following is not None
        target = self._following.targets.get(here) or self._following.target(here, columns)
        target.streams = {
            stream_of(one.name, at) for one in self._topics.values() if one.here == here for at in range(one.partitions)
        }
        return target

    def _add_partitions(self, topic: _Topic, target: ChangeTarget | None, partitions: int) -> None:
        """Find where to begin in new partitions of a topic."""
        assert self._consumer is not None
        assert self._following is not None
        following, known = self._following, self._known
        bounds = {
            stream_of(topic.name, at): self._consumer.get_watermark_offsets(
                TopicPartition(topic.name, at), self.answer_s
            )
            for at in range(topic.partitions, partitions)
        }
        topic.partitions = partitions
        first = {stream: low if following.snapshot or known.anew else high for stream, (low, high) in bounds.items()}
        if target is not None:
            target.streams = {*(target.streams or ()), *bounds}
            if not target.positions and (known.anew or not following.snapshot):
                following.load(target, first, iter(()), target.table.schema.arrow)
        for stream, (low, high) in bounds.items():
            at = None if target is None else target.positions.get(stream)
            if at is None and not known.anew and topic.here not in known.targets:
                # The table will be created with the first change behind this position.
                at = known.confirmed.get(stream)
            self._read[stream] = first[stream] if at is None else at
            if at is not None and not low <= at <= high:
                what = f"topic {topic.name}, partition {stream % GROUP}, has the offsets {low:,} to {high:,}"
                raise self._lost(f"{what}, and the follower is at {at:,}")

    def _check_partitions(self) -> None:
        """Raise UsageError if the positions of a table are too many for a commit id."""
        for here in {one.here for one in self._topics.values()}:
            streams = [
                stream_of(one.name, at)
                for one in self._topics.values()
                if one.here == here
                for at in range(one.partitions)
            ]
            if len(commit_id(self.id, dict.fromkeys(streams, _OFFSET_MAX), 99)) > REQUEST_KEY_CHARACTERS_MAX:
                raise Code.SOURCE_UNSUPPORTED(
                    f"{self.url}: table {here} would take the changes of {len(streams)} partitions, whose positions do "
                    "not fit into a commit id; at most about 50 do",
                    url=self.url,
                )

    def _assign(self) -> None:
        assert self._consumer is not None
        self._answered_s = clock.monotonic_s()
        self._consumer.assign([
            TopicPartition(one.name, at, self._read[stream_of(one.name, at)])
            for one in self._topics.values()
            for at in range(one.partitions)
        ])  # fmt: skip

    def close(self) -> None:
        """End the connections."""
        if self._consumer is not None:
            self._consumer.close()
        if self._registry is not None:
            self._registry.close()
        self._consumer = None

    def forget(self) -> tuple[str, ...]:
        """Nothing: Kafka keeps nothing for a follower."""
        return ()

    # -- changes -----------------------------------------------------------------------------------------------------

    def read(self, deadline_s: float, full: Callable[[], bool]) -> bool:
        """Receive messages until the time, or until ``full`` says so; returns whether more may be there already."""
        assert self._consumer is not None
        with self._answers():
            while True:
                left_s = deadline_s - clock.monotonic_s()
                messages = self._consumer.consume(MESSAGES_MAX, min(max(left_s, 0.0), POLL_S))
                for message in messages:
                    if (error := message.error()) is not None:
                        self._take_error(message, error)
                    else:
                        self._take(message)
                if messages:
                    self._answered_s, self._failed = clock.monotonic_s(), None
                elif self._failed is not None:
                    self._check_failed(self._failed)
                if self._unconverted >= UNCONVERTED_BYTES_MAX:
                    self._flush()
                if full() or left_s <= 0:
                    self._flush()
                    if clock.monotonic_s() - self._looked_s >= self.look_s:
                        self._look()
                    return len(messages) == MESSAGES_MAX

    def _take(self, message: Any) -> None:
        topic = self._topics[message.topic()]
        partition, offset = message.partition(), message.offset()
        stream = topic.number * GROUP + partition
        self._read[stream] = offset + 1
        target = topic.rows.target
        if target is not None and offset < target.positions.get(stream, 0):
            return
        key, value = message.key(), message.value()
        if value is None and topic.last_delete.get(partition) == key:
            # The tombstone behind a delete, for the compaction of the topic.
            return
        origin = MessageOrigin(stream, offset, key, value)
        try:
            change = topic.decoder.decode(key, value)
            if change.kind is Effect.TRUNCATE:
                self._truncate(topic, target)
            elif change.kind is not Effect.SKIPPED:
                topic.rows.add(change, origin)
        except ForeignMessageError as error:
            if isinstance(error, UnknownSchemaError) and not topic.decoded and target is None:
                raise Code.SOURCE_UNREADABLE(
                    f"topic {topic.name}, message {offset}: {error}; is it the registry of this topic (--registry)?",
                    url=self.url,
                    transient=False,
                ) from error
            self._reject(topic.here, str(error), origin)
            return
        topic.decoded = True
        topic.last_delete[partition] = key if change.kind is Effect.DELETE else None
        self._read_ms = message.timestamp()[1]
        self._unconverted += len(value or b"") + len(key or b"")

    def _truncate(self, topic: _Topic, target: ChangeTarget | None) -> None:
        streams = topic.partitions if target is None or target.streams is None else len(target.streams)
        if streams > 1:
            raise ForeignMessageError(
                "it is a TRUNCATE in one of several partitions, whose order with the rows of others is not known: "
                "remove the rows of the table, if they are to go"
            )
        topic.rows.truncate()

    def _no_registry(self, number: int) -> Any:
        raise Code.ARGUMENT_INVALID(
            f"{self.url}: a message has schema {number} of a schema registry: name it with --registry URL, or as "
            f"{REGISTRY_URL} in the file of --source-config"
        )

    def _reject(self, here: str, reason: str, origin: MessageOrigin) -> None:
        assert self._following is not None
        self._following.reject(DeadLetter(here, origin.stream, origin.position, reason, origin.key, origin.value))

    def _flush(self) -> None:
        for topic in self._topics.values():
            topic.rows.flush()
        self._unconverted = 0

    def _look(self) -> None:
        """Begin to read partitions and topics that are new."""
        metadata = self._metadata()
        found = self._followed(metadata)
        fresh = [one for one in found if one[0] not in self._topics]
        if fresh:
            self._check_identities([topic for topic, _ in fresh])
        grown = [one for one in self._topics.values() if len(metadata.topics[one.name].partitions) > one.partitions]
        for topic in grown:
            self._add_partitions(topic, topic.rows.target, len(metadata.topics[topic.name].partitions))
        for name, here in fresh:
            self._add_topic(name, here, len(metadata.topics[name].partitions))
        if fresh or grown:
            self._check_partitions()
            self._assign()

    # -- progress ----------------------------------------------------------------------------------------------------

    def positions(self) -> dict[int, int]:
        """Return the offsets behind the messages that were read."""
        return dict(self._read)

    def confirm(self, positions: dict[int, int]) -> None:
        """Nothing: the offsets are those of the tables."""

    def beat(self) -> None:
        """Nothing: the client does it."""

    def progress(self, positions: dict[int, int]) -> SourceProgress:
        """Return how far a follower is that has committed up to these positions."""
        place, behind = {}, 0
        for topic in self._topics.values():
            at = [positions.get(stream_of(topic.name, one), 0) for one in range(topic.partitions)]
            place[topic.name] = (
                " ".join(f"{one}:{offset}" for one, offset in enumerate(at)) if len(at) > 1 else str(at[0])
            )
            behind += sum(max(self._end(topic.name, one) - offset, 0) for one, offset in enumerate(at))
        since_s = clock.now().timestamp() - self._read_ms / 1e3 if behind and self._read_ms else 0.0
        return SourceProgress(place, Lag(behind, "messages", max(since_s, 0.0)), dict(self._identities))

    def _end(self, topic: str, partition: int) -> int:
        assert self._consumer is not None
        found = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), self.answer_s, cached=True)
        return 0 if found is None else int(found[1])

    def target_end(self) -> dict[int, int]:
        """Return where the messages end that are there now."""
        assert self._consumer is not None
        with self._answers():
            return {
                stream_of(one.name, at): int(
                    self._consumer.get_watermark_offsets(TopicPartition(one.name, at), self.answer_s)[1]
                )
                for one in self._topics.values()
                for at in range(one.partitions)
            }

    # -- errors ------------------------------------------------------------------------------------------------------

    def _take_error(self, message: Any, error: KafkaError) -> None:
        topic, partition = message.topic(), message.partition()
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - a code of the client
            # Behind the last message there may be marks of transactions, which are none.
            stream = stream_of(topic, partition)
            self._read[stream] = max(self._read[stream], message.offset())
            return
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):  # noqa: SLF001
            at = self._read[stream_of(topic, partition)]
            raise self._lost(f"topic {topic}, partition {partition}, has no offset {at:,} any more")
        raise self._error(error)

    def _lost(self, what: str) -> Error:
        return Code.SOURCE_POSITION_LOST(
            f"{self.url}: {what}: changes in between are missing in the tables. Follow again with --resnapshot, which "
            "removes all rows and reads the topics from their beginnings; if these do not hold every row any more, "
            "have the connector take a snapshot first",
            url=self.url,
        )

    def _note_error(self, error: KafkaError) -> None:
        """Keep an error that the client reports beside the messages."""
        if error.code() in _REFUSED or error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._failed = error

    def _check_failed(self, error: KafkaError) -> None:
        if error.code() in _REFUSED or clock.monotonic_s() - self._answered_s > self.answer_s:
            raise self._error(error)

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Translate errors of the client."""
        try:
            yield
        except KafkaException as error:
            if self._consumer is not None and self._failed is None:
                self._consumer.poll(0)  # reports why
            raise self._error(self._failed or error.args[0]) from error

    def _error(self, error: KafkaError) -> Error:
        refused = error.code() in _REFUSED
        advice = (
            "see security.protocol, sasl.mechanism, sasl.username, sasl.password and ssl.ca.location in the file of "
            "--source-config, and the rights of the user: DESCRIBE and READ on the topics"
            if refused
            else f"is there a broker at {self._brokers}, and are the addresses that it advertises reachable from here?"
        )
        return Code.SOURCE_UNREADABLE(
            f"{self.url}: {error.str()}; {advice}", url=self.url, transient=not refused and not error.fatal()
        )
