"""Tables whose garbage goes at once, other processes that hold them, and stores between whose calls things happen."""

import pyarrow as pa

import lakebed
from lakebed import Schema, clock
from lakebed.log.backends.objects import ObjectLogs
from lakebed.model.files import data_folder, pin_folder
from lakebed.table.instance import Instance
from lakebed.table.table import Table
from lakebed.testing.faults import CountingStorage

SCHEMA = Schema({"k": "string"}, values={"v": "int64"})
AT_ONCE = {"history_s": 0, "orphan_age_s": 0}


def made(*texts, url=None, **settings):
    """A table, in memory, with a file for each text: a row for each letter."""
    instance = lakebed.create(url or f"memory://{clock.random_token()}")
    table = instance.create_table("t", SCHEMA, settings={**AT_ONCE, **settings})
    for text in texts:
        table.write(rows(text))
    return table


def rows(letters):
    return pa.table({"k": list(letters), "v": pa.array(range(len(letters)), pa.int64())})


def letters(snapshot):
    return "".join(snapshot.scan().read_all().column("k").to_pylist())


def on(table, storage=None):
    """The same table as another process has it, maybe through a storage of its own."""
    storage = storage or table.storage
    return Table(table.id, table.name, storage, ObjectLogs(storage), dict)


def through(instance, storage):
    """The same instance as another process has it, through a storage of its own."""
    return Instance(storage, {"instance": instance.id})


def sound(table):
    """What a process that knows nothing yet reads; every object that it needs is there."""
    fresh = on(table)
    assert fresh.verify(files=True).sound
    return letters(fresh)


def objects(table):
    return sorted(listed.name for listed in table.storage.list(data_folder(table.id)))


def pins(table):
    return [listed.name for listed in table.storage.list(pin_folder(table.id))]


def nothing_is_left_over(table):
    """The data folder holds two objects for each file on record, and nothing else."""
    return len(objects(table)) == 2 * len(on(table).state().files)


def let_time_pass(storage):
    """Until the store's clock is beyond every last-modified time that it has given so far."""
    before = storage.now()
    while storage.now() <= before:
        pass


class Killed(BaseException):
    """The process ends here."""


class Mortal(CountingStorage):
    """A store whose process is killed at its n-th change, before it takes effect or right after."""

    def __init__(self, inner, change, *, after):
        super().__init__(inner)
        self.left, self.after = change, after

    def create(self, name, data):
        # Checkpoints are written beside what is done, by a thread of their own.
        put = super().create
        return self._changing(lambda: put(name, data)) if "/log/" in name else put(name, data)

    def delete(self, names):
        remove = super().delete
        return self._changing(lambda: remove(names))

    def _changing(self, effect):
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        done = effect()
        if self.left == 0:
            raise Killed
        return done


class Ahead(CountingStorage):
    """A store seen by one whose view of its clock is ahead by so much."""

    def __init__(self, inner, by):
        super().__init__(inner)
        self.by = by

    def now(self):
        return super().now() + self.by
