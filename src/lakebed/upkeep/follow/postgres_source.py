"""PostgreSQL as a source of changes: a logical slot, read by the replication protocol with the plugin ``pgoutput``.

The server keeps what a follower has not confirmed for a *slot*, ``lakebed_NAME``, and sends the tables of a
*publication* of the same name. Both are created when they are missing. A table without a position gets a snapshot
first: a temporary slot exports the state of the database at a position, its rows are copied by a session with that
state, and changes before that position are skipped for the table. So a table that is added later gets its snapshot
beside the others.

A position is recorded before it is confirmed, so a slot that is ahead of the record was moved by someone else, and what
it skipped is missing: the follower stops.

Core types: :class:`PostgresSource`. Errors: StorageError (``source_unreadable``) for a server that does not answer,
``source_busy`` for a slot that another follower reads, ``source_position_lost`` for a slot that is gone.

Source: PostgreSQL, "Streaming Replication Protocol", "Logical Decoding".
"""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from struct import Struct
from typing import TYPE_CHECKING, Any

import psycopg
import pyarrow as pa
from psycopg import pq, sql

from lakebed import clock
from lakebed.errors import Code, Error
from lakebed.log.backends.postgresql import PostgresqlServer, refusal_remedy
from lakebed.model import types
from lakebed.upkeep.follow.change_source import DeadLetter, Lag, RecordedSource, SourceProgress, shown_row
from lakebed.upkeep.follow.pgoutput import Decoder, Relation, TableChanges
from lakebed.upkeep.follow.postgres_rows import PostgresRows
from lakebed.upkeep.follow.postgres_values import BY_OID, NUMERIC_OID, SESSION, TEXT, PostgresType, numeric
from lakebed.upkeep.follow.row_buffer import Reject, column
from lakebed.upkeep.follow.target import ChangeTarget, SourceColumns

if TYPE_CHECKING:
    from lakebed.upkeep.follow.change_source import Following

STREAM = 0
"""A server has one stream of changes."""

END_S = 2.0
"""How long the server may take to end a stream."""

COPIED_ROWS = 16_384
UNCONVERTED_BYTES_MAX = 8 * 1024 * 1024

_EPOCH_US = 946_684_800_000_000
_WAL = Struct("!cqqq")
_KEEPALIVE = Struct("!cqqB")
_STATUS = Struct("!cqqqqB")


class PostgresSource:
    """The tables of a database. ``tables`` are pairs of a name there and a name here; none: all in ``public``."""

    def __init__(self, url: str, name: str, tables: Sequence[tuple[str, str]], publication: str | None) -> None:
        self.url = url
        self.id = ""
        self._server = PostgresqlServer.at(url)
        self._slot = f"lakebed_{name}"
        self._publication = publication or self._slot
        self._own_publication = publication is None
        self._wanted = list(tables)
        self._sql: psycopg.Connection | None = None
        self._stream: psycopg.Connection | None = None
        self._following: Following | None = None
        self._names: dict[str, str] = {}
        self._buffers: dict[int, PostgresRows] = {}
        self._types: dict[tuple[int, int], PostgresType] = {}
        self._decoder = Decoder(self._changes_of)
        self._unconverted = 0
        self._read = self._end = self._confirmed = 0
        self._commit_us = 0
        self._snapshot_at = 0

    # -- begin and end -----------------------------------------------------------------------------------------------

    def open(self, following: Following) -> None:
        """Connect, make what is missing, take snapshots, and begin to receive changes."""
        self.close()
        self._following = following
        with self._answers():
            options = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
            self._sql = self._server.connect(options=options)
            self._check_server()
            tables = self._tables()
            self._publish(list(tables))
            known = following.prepared(self.id)
            at, made = self._slot_position(known)
            targets = {name: self._target(name, found) for name, found in tables.items()}
            if made and any(target.positions for target in targets.values()):
                self._drop_slot()
                newest = max(target.positions.get(STREAM, 0) for target in targets.values())
                raise self._lost(f"the slot {self._slot} is gone", newest)
            self._confirmed = self._read = max(at, 0 if made else known.confirmed.get(STREAM, 0))
            following.record({STREAM: self._confirmed})
            self._snapshots(targets, tables, self._confirmed)
            self._decoder = Decoder(self._changes_of)
            self._buffers = {}
            self._stream = self._replication()
            self._start()

    def close(self) -> None:
        """End the connections."""
        if self._stream is not None:
            with suppress(psycopg.Error):
                self._end_stream(self._stream.pgconn)
        for connection in (self._stream, self._sql):
            if connection is not None:
                with suppress(psycopg.Error):
                    connection.close()
        self._stream = self._sql = None

    def forget(self) -> tuple[str, ...]:
        """Drop the slot, and the publication if it has the follower's name."""
        dropped = []
        with self._answers():
            self._sql = self._server.connect()
            try:
                if self._rows("SELECT 1 FROM pg_replication_slots WHERE slot_name = %s", self._slot):
                    self._drop_slot()
                    dropped.append(f"slot {self._slot}")
                if self._rows("SELECT 1 FROM pg_publication WHERE pubname = %s", self._slot):
                    self._execute(sql.SQL("DROP PUBLICATION {}").format(sql.Identifier(self._slot)))
                    dropped.append(f"publication {self._slot}")
            finally:
                self._sql.close()
                self._sql = None
        return tuple(dropped)

    @staticmethod
    def _end_stream(pgconn: Any) -> None:
        """Ask the server to end the stream, and wait for it: so it has the last confirmation, and frees the slot."""
        end_s = clock.monotonic_s() + END_S
        pgconn.put_copy_end()
        pgconn.flush()
        while clock.monotonic_s() < end_s:
            size, _ = pgconn.get_copy_data(1)
            if size < 0:
                return
            if size == 0:
                select.select([pgconn.socket], [], [], 0.1)
                pgconn.consume_input()

    def _check_server(self) -> None:
        (level,) = self._row("SELECT current_setting('wal_level')")
        if level != "logical":
            raise Code.SOURCE_UNSUPPORTED(
                f"{self.url} has wal_level = {level}, and its changes can only be followed with logical: run ALTER "
                "SYSTEM SET wal_level = logical, and restart the server",
                url=self.url,
            )
        (system,) = self._row("SELECT system_identifier FROM pg_control_system()")
        self.id = f"postgresql/{system}/{self._slot}"

    # -- tables ------------------------------------------------------------------------------------------------------

    def _tables(self) -> dict[str, SourceColumns]:
        """Return the tables that are followed, and their columns, by their names at the source."""
        rows = self._rows(
            "SELECT n.nspname, c.relname, c.relreplident, "
            "(SELECT array_agg(a.attname::text ORDER BY k.at) FROM pg_index i, "
            "unnest(i.indkey) WITH ORDINALITY k(num, at) JOIN pg_attribute a ON a.attnum = k.num "
            "WHERE a.attrelid = c.oid AND i.indrelid = c.oid AND k.at <= i.indnkeyatts "
            "AND CASE c.relreplident WHEN 'i' THEN i.indisreplident ELSE i.indisprimary END), "
            "(SELECT array_agg(ARRAY[a.attname::text, a.atttypid::text, a.atttypmod::text] ORDER BY a.attnum) "
            "FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped "
            "AND a.attgenerated = '') "
            "FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition AND n.nspname NOT IN ('pg_catalog', "
            "'information_schema') ORDER BY 1, 2"
        )
        there = {f"{space}.{name}": (identity, key, found) for space, name, identity, key, found in rows}
        if self._wanted:
            names = {name if "." in name else f"public.{name}": here for name, here in self._wanted}
        else:
            names = {name: name.partition(".")[2] for name in there if name.startswith("public.")}
        missing = sorted(set(names) - set(there))
        if missing or not names:
            what = f"no table {', '.join(missing)}" if missing else "no table in the schema public"
            raise Code.SOURCE_NOT_FOUND(
                f"{self.url}: {what}; name tables with --table [SCHEMA.]TABLE. There are: {', '.join(there) or 'none'}",
                url=self.url,
            )
        self._names = names
        return {name: self._columns(name, *there[name]) for name in names}

    def _columns(
        self, name: str, identity: str, key: list[str] | None, found: list[tuple[str, str, str]]
    ) -> SourceColumns:
        if key is None or identity == "n":
            what = "has no primary key" if key is None else "has REPLICA IDENTITY NOTHING"
            remedy = (
                f"ALTER TABLE {name} ADD PRIMARY KEY (…), or ALTER TABLE {name} REPLICA IDENTITY USING INDEX … of a "
                "unique index over columns that are not null"
                if key is None
                else f"ALTER TABLE {name} REPLICA IDENTITY DEFAULT"
            )
            raise Code.SOURCE_CHANGE_UNSUPPORTED(
                f"{self.url}: table {name} {what}, so an update does not say which row it changes: {remedy}; or follow "
                "other tables with --table",
                source=name,
            )
        kinds = {one: self._type(int(oid), int(modifier)).name for one, oid, modifier in found}
        return SourceColumns(name, tuple(key), kinds)

    def _type(self, oid: int, modifier: int) -> PostgresType:
        """Return the type of a column: built in, an array or a domain of one, or text."""
        if (oid, modifier) not in self._types:
            found = BY_OID.get(oid)
            if oid == NUMERIC_OID:
                found = numeric(modifier)
            elif found is None:
                kind, base, base_modifier, item, length = self._row(
                    "SELECT typtype, typbasetype, typtypmod, CASE typcategory WHEN 'A' THEN typelem ELSE 0 END, typlen "
                    "FROM pg_type WHERE oid = %s",
                    oid,
                )
                if kind == "d":
                    found = self._type(base, base_modifier)
                else:
                    found = self._type(item, modifier).listed() if item and length == -1 else TEXT
            self._types[oid, modifier] = found
        return self._types[oid, modifier]

    def _target(self, name: str, columns: SourceColumns) -> ChangeTarget:
        assert self._following is not None
        target = self._following.target(self._names[name], columns)
        target.fit(columns)
        return target

    # -- publication, slot and snapshots -----------------------------------------------------------------------------

    def _publish(self, names: list[str]) -> None:
        """Make the publication, or add tables to it."""
        listed = sql.SQL(", ").join(sql.Identifier(*name.split(".", 1)) for name in names)
        publication = sql.Identifier(self._publication)
        published = self._rows("SELECT 1 FROM pg_publication WHERE pubname = %s", self._publication)
        if not published and self._own_publication:
            self._execute(
                sql.SQL("CREATE PUBLICATION {} FOR TABLE {} WITH (publish_via_partition_root = true)").format(
                    publication, listed
                )
            )
            return
        if not published:
            raise Code.SOURCE_NOT_FOUND(
                f"{self.url}: no publication {self._publication}; create it, or leave out --publication", url=self.url
            )
        there = self._rows(
            "SELECT schemaname || '.' || tablename FROM pg_publication_tables WHERE pubname = %s", self._publication
        )
        missing = [name for name in names if (name,) not in there]
        if missing and not self._own_publication:
            raise Code.SOURCE_NOT_FOUND(
                f"{self.url}: publication {self._publication} has no table {', '.join(missing)}: ALTER PUBLICATION "
                f"{self._publication} ADD TABLE {', '.join(missing)}",
                url=self.url,
            )
        if missing:
            added = sql.SQL(", ").join(sql.Identifier(*name.split(".", 1)) for name in missing)
            self._execute(sql.SQL("ALTER PUBLICATION {} ADD TABLE {}").format(publication, added))

    def _slot_position(self, known: RecordedSource) -> tuple[int, bool]:
        """Return the position of the slot, and whether it was made now, because nothing is known of one."""
        found = self._rows(
            "SELECT plugin, database, active_pid, wal_status, confirmed_flush_lsn - '0/0'::pg_lsn, "
            "current_database() FROM pg_replication_slots WHERE slot_name = %s",
            self._slot,
        )
        confirmed = known.confirmed.get(STREAM)
        if not found:
            if confirmed is not None and not known.anew:
                raise self._lost(f"the slot {self._slot} is gone", confirmed)
            return self._made_slot()
        plugin, database, pid, wal, at, here = found[0]
        if plugin != "pgoutput" or database != here:
            raise Code.SOURCE_UNSUPPORTED(
                f"{self.url}: the slot {self._slot} is one of {plugin} in the database {database}: follow with another "
                "--name",
                url=self.url,
            )
        if pid is not None:
            raise self._busy(pid)
        if wal == "lost" or at is None:
            if not known.anew:
                raise self._lost(f"the slot {self._slot} was invalidated (max_slot_wal_keep_size)", confirmed or 0)
            self._drop_slot()
            return self._made_slot()
        if confirmed is not None and int(at) > confirmed and not known.anew:
            raise self._lost(f"the slot {self._slot} was moved on to {_lsn(int(at))}", confirmed)
        return int(at), False

    def _made_slot(self) -> tuple[int, bool]:
        (at,) = self._row(
            "SELECT lsn - '0/0'::pg_lsn FROM pg_create_logical_replication_slot(%s, 'pgoutput')", self._slot
        )
        return int(at), True

    def _drop_slot(self) -> None:
        self._rows("SELECT pg_drop_replication_slot(%s)", self._slot)

    def _lost(self, what: str, at: int) -> Error:
        return Code.SOURCE_POSITION_LOST(
            f"{self.url}: {what}, and with it the changes after {_lsn(at)}: inserts, updates and deletes since are "
            "missing in the tables. Follow again with --resnapshot, which replaces all rows by a new snapshot",
            url=self.url,
        )

    def _busy(self, pid: int | None) -> Error:
        by = "" if pid is None else f" (process {pid} of the server)"
        return Code.SOURCE_BUSY(
            f"{self.url}: another follower reads the slot {self._slot}{by}; stop it, or wait until the server has "
            "noticed that it is gone (wal_sender_timeout)",
            url=self.url,
            transient=True,
        )

    def _snapshots(self, targets: dict[str, ChangeTarget], tables: dict[str, SourceColumns], at: int) -> None:
        assert self._following is not None
        waiting = {name: target for name, target in targets.items() if not target.positions}
        if not waiting:
            return
        if not self._following.snapshot:
            for name, target in waiting.items():
                self._following.load(target, {STREAM: at}, iter(()), _arrow(tables[name]))
            return
        connection = self._replication()
        try:
            temporary = f"{self._slot}_{clock.random_token()[:8]}"
            made = connection.pgconn.exec_(
                f'CREATE_REPLICATION_SLOT "{temporary}" TEMPORARY LOGICAL pgoutput EXPORT_SNAPSHOT'.encode()
            )
            self._check(made)
            position, exported = _position(_text(made, 1)), _text(made, 2)
            self._snapshot_at = position
            for name, target in waiting.items():
                self._following.load(target, {STREAM: position}, *self._copied(name, tables[name], exported))
        finally:
            connection.close()

    def _copied(self, name: str, columns: SourceColumns, exported: str) -> tuple[Iterator[pa.RecordBatch], pa.Schema]:
        """Return the rows of a table in an exported snapshot."""
        assert self._sql is not None
        connection, names = self._sql, [*columns.types]
        oids = self._rows(
            "SELECT attname::text, atttypid, atttypmod FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 "
            "AND NOT attisdropped",
            sql.Identifier(*name.split(".", 1)).as_string(),
        )
        kinds = {one: self._type(oid, modifier) for one, oid, modifier in oids}
        query = sql.SQL("COPY (SELECT {} FROM {}) TO STDOUT").format(
            sql.SQL(", ").join(map(sql.Identifier, names)), sql.Identifier(*name.split(".", 1))
        )

        def batches() -> Iterator[pa.RecordBatch]:
            with self._answers(), connection.transaction():
                connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                connection.execute(sql.SQL("SET TRANSACTION SNAPSHOT {}").format(sql.Literal(exported)))
                with connection.cursor().copy(query) as copy:
                    rows: list[tuple[Any, ...]] = []
                    for row in copy.rows():
                        rows.append(row)
                        if len(rows) == COPIED_ROWS:
                            yield self._batch(name, columns, kinds, rows)
                            rows = []
                    if rows:
                        yield self._batch(name, columns, kinds, rows)

        return batches(), _arrow(columns)

    def _batch(
        self, name: str, columns: SourceColumns, kinds: dict[str, PostgresType], rows: list[tuple[Any, ...]]
    ) -> pa.RecordBatch:
        assert self._following is not None
        arrays: list[pa.Array] = []
        wrong: dict[int, str] = {}
        for one, found in zip(columns.types, zip(*rows, strict=True), strict=True):
            values = [None if value is None else value.encode() for value in found]
            array, refused = column(kinds[one], values)
            arrays.append(array)
            wrong |= {position: f"column {one}: {reason}" for position, reason in refused.items()}
        batch = pa.RecordBatch.from_arrays(arrays, names=[*columns.types])
        for position, reason in sorted(wrong.items()):
            row = dict(zip(columns.types, rows[position], strict=True))
            key = {one: row[one] for one in columns.key}
            self._reject(self._names[name], self._snapshot_at, reason, key, row)
        return batch.filter(pa.array([at not in wrong for at in range(len(rows))])) if wrong else batch

    # -- changes -----------------------------------------------------------------------------------------------------

    def _start(self) -> None:
        assert self._stream is not None
        names = f'"{self._publication}"'.replace("'", "''")
        options = f"proto_version '1', publication_names '{names}'"
        command = f'START_REPLICATION SLOT "{self._slot}" LOGICAL 0/0 ({options})'
        self._check(self._stream.pgconn.exec_(command.encode()))

    def read(self, deadline_s: float, full: Callable[[], bool]) -> bool:
        """Receive changes until the time, or until ``full`` says so, and to the end of a transaction.

        Returns whether more may be there already.
        """
        assert self._stream is not None
        pgconn = self._stream.pgconn
        with self._answers():
            while True:
                size, data = pgconn.get_copy_data(1)
                if size > 0:
                    self._take(bytes(data))
                    if not self._decoder.in_transaction and (full() or clock.monotonic_s() >= deadline_s):
                        self._flush()
                        return True
                elif size == 0:
                    left_s = deadline_s - clock.monotonic_s()
                    if left_s <= 0 and not self._decoder.in_transaction:
                        self._flush()
                        return False
                    ready, _, _ = select.select([pgconn.socket], [], [], min(max(left_s, 0.01), 1.0))
                    if ready:
                        pgconn.consume_input()
                    else:
                        self.beat()
                else:
                    self._check(pgconn.get_result())
                    raise psycopg.OperationalError("the server ended the stream")

    def _take(self, data: bytes) -> None:
        if data[0] == 0x77:  # w
            self._end = max(self._end, _WAL.unpack_from(data)[2])
            try:
                commit = self._decoder.take(data[_WAL.size :])
            except ValueError as error:
                raise Code.SOURCE_DAMAGED(f"{self.url}: {error}", url=self.url) from error
            self._unconverted += len(data)
            if self._unconverted >= UNCONVERTED_BYTES_MAX:
                self._flush()
            if commit is not None:
                self._read, self._commit_us = commit.end, commit.at_us
        elif data[0] == 0x6B:  # k
            _, end, _, asked = _KEEPALIVE.unpack_from(data)
            self._end = max(self._end, end)
            if not self._decoder.in_transaction:
                # All transactions that ended before it were sent.
                self._read = max(self._read, end)
            if asked:
                self.beat()

    def _flush(self) -> None:
        for buffer in self._buffers.values():
            buffer.flush()
        self._unconverted = 0

    def _changes_of(self, relation: Relation, commit_at: int) -> TableChanges | None:
        """Return the changes of a table, unless it is not followed or has this transaction already."""
        assert self._following is not None
        name = f"{relation.namespace}.{relation.name}"
        here = self._names.get(name)
        if here is None:
            return None
        target = self._following.targets[here]
        if commit_at < target.positions.get(STREAM, 0):
            return None
        buffer = self._buffers.get(relation.oid)
        if buffer is None or buffer.relation != relation:
            if buffer is not None:
                buffer.flush()
            kinds = {one.name: self._type(one.oid, one.modifier) for one in relation.columns}
            self._check_identity(name, relation, target)
            key = target.table.schema.row_key_names
            target.fit(SourceColumns(name, key, {one: kind.name for one, kind in kinds.items()}))
            buffer = PostgresRows(relation, target, kinds, self._rejecting(here))
            self._buffers[relation.oid] = buffer
        return buffer

    def _check_identity(self, name: str, relation: Relation, target: ChangeTarget) -> None:
        key = target.table.schema.row_key_names
        identity = {one.name for one in relation.columns if one.identifies}
        if relation.identity != "f" and identity != set(key):
            raise Code.SOURCE_CHANGE_UNSUPPORTED(
                f"{self.url}: table {name} has now the key {', '.join(sorted(identity)) or 'of no column'}, and table "
                f"{target.table.name} the row key {', '.join(key)}: restore the key there, or follow {name} into "
                f"another table (--table {name}=NEW_NAME), which gets a snapshot",
                table=target.table.name,
            )

    def _rejecting(self, here: str) -> Reject:
        return lambda reason, key, row, _: self._reject(here, self._decoder.commit_at, reason, key, row)

    def _reject(self, here: str, position: int, reason: str, key: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        assert self._following is not None
        self._following.reject(DeadLetter(here, STREAM, position, reason, shown_row(key), shown_row(row)))

    # -- progress ----------------------------------------------------------------------------------------------------

    def positions(self) -> dict[int, int]:
        """Return the position up to which changes were read."""
        return {STREAM: self._read}

    def confirm(self, positions: dict[int, int]) -> None:
        """Let the server forget what comes before: it is committed, and recorded."""
        self._confirmed = max(self._confirmed, positions.get(STREAM, 0))
        self.beat()

    def beat(self) -> None:
        """Tell the server that the follower is there; it answers with the end of its log."""
        if self._stream is None:
            return
        at = self._confirmed
        now = int(clock.now().timestamp() * 1_000_000) - _EPOCH_US
        with self._answers():
            self._stream.pgconn.put_copy_data(_STATUS.pack(b"r", at, at, at, now, 1))
            self._stream.pgconn.flush()

    def progress(self, positions: dict[int, int]) -> SourceProgress:
        """Return how far a follower is that has committed up to these positions."""
        at = positions.get(STREAM, 0)
        behind = max(self._end - at, 0)
        since_s = clock.now().timestamp() - self._commit_us / 1e6 if behind and self._commit_us else 0.0
        return SourceProgress({"lsn": _lsn(at)}, Lag(behind, "bytes", max(since_s, 0.0)))

    def target_end(self) -> dict[int, int]:
        """Return where the changes end that are there now."""
        with self._answers():
            (end,) = self._row("SELECT pg_current_wal_flush_lsn() - '0/0'::pg_lsn")
        return {STREAM: int(end)}

    # -- the server --------------------------------------------------------------------------------------------------

    def _replication(self) -> psycopg.Connection:
        options = " ".join(f"-c {name}={value}" for name, value in SESSION.items())
        return self._server.connect(replication="database", options=options)

    def _rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        assert self._sql is not None
        return self._sql.execute(query, values or None).fetchall()

    def _row(self, query: str, *values: Any) -> tuple[Any, ...]:
        return self._rows(query, *values)[0]

    def _execute(self, statement: sql.Composed) -> None:
        assert self._sql is not None
        self._sql.execute(statement)

    def _check(self, result: Any) -> None:
        """Raise the error of a result of the replication connection, if it is one."""
        if result is None or result.status not in (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE):
            return
        state = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        text = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b"").decode("utf-8", "replace")
        raise self._error(state, text)

    @contextmanager
    def _answers(self) -> Iterator[None]:
        """Translate errors of the driver."""
        try:
            yield
        except psycopg.Error as error:
            raise self._error(error.sqlstate or "", str(error)) from error

    def _error(self, state: str, text: str) -> Error:
        said = " ".join(text.split())[:400]
        if state == "55006":
            return self._busy(None)
        if state == "42501":
            return Code.SOURCE_UNREADABLE(
                f"{self.url}: {said}. The user needs the attribute REPLICATION, SELECT on the tables, and to make a "
                "publication CREATE on the database and ownership of the tables (or give --publication NAME)",
                url=self.url,
                transient=False,
            )
        remedy = None if state else refusal_remedy(text)
        transient = (not state and remedy is None) or state[:2] in ("08", "57", "53", "40")
        if state in ("53400", "55000"):
            transient, remedy = False, "see max_replication_slots, max_wal_senders and wal_level"
        advice = f"; {remedy}" if remedy else ""
        return Code.SOURCE_UNREADABLE(f"{self.url}: {said}{advice}", url=self.url, transient=transient)


def _arrow(columns: SourceColumns) -> pa.Schema:
    return pa.schema([(name, types.parse(kind)) for name, kind in columns.types.items()])


def _text(result: Any, at: int) -> str:
    return str((result.get_value(0, at) or b"").decode())


def _position(lsn: str) -> int:
    high, _, low = lsn.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def _lsn(at: int) -> str:
    return f"{at >> 32:X}/{at & 0xFFFFFFFF:X}"
