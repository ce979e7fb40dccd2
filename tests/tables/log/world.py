"""A table under all that can happen to it at once, and what must hold after every step.

Processes commit to one table's log over a store that loses, delays, repeats and refuses requests: writers with and
without request keys, splitters, compactors that may be late or closed by others, readers that follow, collectors of
garbage, which truncate the log as well while others sleep. Some are killed; another takes their place. The code is the
real one from the table down to the store; data files are drawn: a row is a letter and the file that first held it, so
that each row is the only one of its kind.

The sequential model is the entries as they lie in the store, applied one after another by the check alone, beside
the rows of all files that they added. After every step:

* an actor that opens the log anew has that state, by checkpoint or not; one with a head has that of its version;
* every row is read once and once only, exact counts are exact, the invariants hold, each referenced file is there;
* what was reported as committed is in the entry that was named, what was refused in none, nothing in two.
"""

from collections import Counter
from datetime import timedelta
from functools import partial
from itertools import count
from random import Random

from lakebed.errors import ContentionError, StorageError, UnknownOutcomeError
from lakebed.log.backends.objects import ObjectLog, ObjectLogs
from lakebed.log.checkpoint import CheckpointLocation, Head
from lakebed.log.log_limits import LIMITS, LogLimits
from lakebed.log.outcomes import Committed, Contended, Unknown
from lakebed.log.replay import advance
from lakebed.log.sidecars import SidecarStore
from lakebed.model.files import data_name, entry_name, parse_entry_name, sidecar_name, table_prefix
from lakebed.model.settings import Settings, Strategy
from lakebed.model.state.codec import outline
from lakebed.model.state.invariants import check_invariants
from lakebed.model.state.machine import TABLE
from lakebed.model.state.table_state import Job
from lakebed.model.state.transactions import (
    CloseJob,
    CreateTable,
    OpenJob,
    ProposeFiles,
    ProposeOutput,
    ProposeSplit,
    TooOld,
)
from lakebed.storage import connect
from lakebed.storage.contract import PutOutcome
from lakebed.table.table import Table
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Rule
from lakebed.upkeep.compaction.plan import plan as plan_compaction
from lakebed.upkeep.retention import run as collection
from tests.pure.state.cases import key, new_file
from tests.tables.log.schedule import ClockedStorage, Lock, Schedule, SteppedStorage, TellingLogs

TABLE_ID = "table-00"
PREFIX = table_prefix(TABLE_ID)
RUNS = count()

LETTERS = "abcdefghijkl"
KEYS = {letter: key(letter) for letter in LETTERS}
HISTORIES_S = (5, 5, 30)
"""How long files are kept: so shortly that many are deleted, or so long that a reader can be slow."""

FAULT_SHARES = (0, 0, 0.02, 0.1, 0.35)


class Violation(AssertionError):
    """A promise that was broken."""


class Process:
    """One process: a table of its own, locks that the schedule knows, and the head that it was last seen with."""

    def __init__(self, world, name):
        self.name = name
        self.table = Table(TABLE_ID, "t", world.storage, world.logs(world.storage), dict)
        self.log = self.table.log
        self.log.limits = world.limits
        self.log.tail._advancing = Lock(world.schedule)
        self.seen = None
        self.actors = []
        self.writing = None


class World:
    """The store, the processes, and what is known of every proposal."""

    def __init__(self, seed):
        self.random = Random(seed)
        self.limits = LogLimits(
            settle_puts=3,
            losing_s=10.0,
            fresh_s=10.0,
            ahead_bytes=self.random.choice([0, 2_000, LIMITS.ahead_bytes]),
            segment_age=timedelta(seconds=4),
            inline_bytes=self.random.choice([0, LIMITS.inline_bytes]),
        )
        self.history_s = self.random.choice(HISTORIES_S)
        self.schedule = Schedule(Random(seed + 1_000_000))
        self.inner = ClockedStorage(connect(f"memory://simulation-{next(RUNS)}"))
        self.faulty = FaultyStorage(self.inner, FaultPlan(self._rules(), seed))
        self.storage = SteppedStorage(self.faulty, self.schedule, self.random.choice([0, 0.05, 0.3]))
        self.logs = self.random.choice([ObjectLogs, TellingLogs])
        self.processes = []
        self.names = count()
        self.contents = {}
        self.heads = [Head(0, "", TABLE.empty)]
        self.entries = {}
        self.named = {}
        self.signs = {}
        self.added = Counter()
        self.requests = {}
        self.answered = {}
        self.unknown = set()
        self.counts = Counter()

    def _rules(self):
        draw, late = self.random.choice, self.random.choice([1, 2, 5, 20, 80])
        faults = [Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.CONFLICT, Fault.LATE]
        rules = [Rule(f, "create", probability=draw(FAULT_SHARES), later_calls=late) for f in faults]
        rules.append(Rule(Fault.FULL, "create", "*/log/*", probability=draw((0, 0.03))))
        rules += [
            Rule(fault, operation, probability=draw(FAULT_SHARES), later_calls=late)
            for operation in ("replace", "delete")
            for fault in (Fault.FAIL_BEFORE, Fault.FAIL_AFTER, Fault.LATE)
        ]
        return rules + [
            Rule(Fault.FAIL_BEFORE, o, probability=draw((0, 0.03, 0.1))) for o in ("get", "last_modified", "list")
        ]

    # -- processes ----------------------------------------------------------------------------------------------

    def start(self, name, tasks):
        """A process, and one or two actors in it that share so many tasks."""
        process = Process(self, name)
        self.processes.append(process)
        left = iter(range(tasks))
        for version in range(self.random.randint(1, 2)):
            worker = partial(self._work, process, left)
            process.actors.append(self.schedule.spawn(f"{name}.{version}", worker))
        return process

    def _work(self, process, left):
        tasks = (add, add, compact, compact, compact, split, close, collect, collect, read)
        for _ in left:
            task = self.schedule.random.choice(tasks)
            try:
                task(self, process)
            except StorageError:
                self.schedule.say(f"{task.__name__} failed")

    def kill(self, process):
        self.counts["killed"] += 1
        for actor in process.actors:
            actor.killed = True
        self.processes.remove(process)
        self.start(process.name + "'", 3)

    def write_checkpoint(self, tail):
        """In place of a thread of its own."""
        process = next(p for p in self.processes if p.log.tail is tail)
        if process.writing is None or process.writing.done:
            self.counts["checkpoints"] += 1
            process.writing = self.schedule.spawn(f"{process.name}.s", partial(tail._write_checkpoint, tail.head))
            process.actors.append(process.writing)

    # -- proposals -------------------------------------------------------------------------------------------------

    def file(self, rows):
        """A new file of these rows, its object in the store."""
        name = f"f{next(self.names)}"
        self.contents[name] = rows
        letters = "".join(letter for letter, _ in rows) if rows else self.schedule.random.choice(LETTERS)
        samples = None if self.schedule.random.random() < 0.5 else set(letters[::3])
        new = new_file(name, letters, samples=samples)
        while self.storage.create(data_name(TABLE_ID, new.file), b"rows") is PutOutcome.UNCLEAR:
            pass
        return new

    def commit(self, process, proposal):
        """The outcome of a proposal, held against the log; None: the store failed, and nothing was committed."""
        sign = sign_of(proposal)
        if self.signs.get(sign, 0) is None:
            # What was refused may be proposed anew.
            del self.signs[sign]
        try:
            outcome = process.log.commit(proposal)
        except StorageError:
            outcome = None
        self.schedule.say(f"reported {sign} {outcome}")
        self.counts[f"reported {type(outcome).__name__}"] += 1
        if isinstance(outcome, Unknown | TooOld):
            self.unknown.add(sign)
        elif isinstance(outcome, Committed) and outcome.repeated:
            expect(
                self.heads[outcome.version].state.answered(proposal.request_key) == outcome.version, "no such request"
            )
        elif isinstance(outcome, Committed):
            self.observe()
            expect(self.signs.get(sign) == outcome.version, f"{sign} is not in entry {outcome.version}")
        elif sign[0] in ("add_files", "replace") and sign not in self.unknown:
            self.signs.setdefault(sign, None)
            expect(self.signs[sign] is None, f"{sign} was reported as {outcome} and is in entry {self.signs[sign]}")
        return outcome

    # -- the check ----------------------------------------------------------------------------------------------

    def observe(self):
        """Hold what is in the store, and in the memory of each process, against the sequential model."""
        changed, self.inner.changed = self.inner.changed, set()
        head = self.heads[-1]
        if changed:
            while (data := self.inner.get(entry_name(PREFIX, len(self.heads)))) is not None:
                self._apply(data)
            head = self.heads[-1]
            log_start = ObjectLog(self.inner, PREFIX).log_start()
            for name in changed & self.named.keys():
                truncated = self.named[name] <= log_start
                expect(truncated or self.inner.get(name) is not None, f"{name} was swept, and an entry names it")
            for name in changed & self.entries.keys():
                truncated = parse_entry_name(PREFIX, name) <= log_start
                expect(truncated or self.inner.get(name) == self.entries[name], f"{name} was changed")
            self._check_objects(head.state)
        if any(name.startswith(PREFIX) and "/data/" not in name for name in changed):
            fresh = Table(TABLE_ID, "t", self.inner, ObjectLogs(self.inner), dict).log
            expect(fresh.follow() == head.state, f"a fresh reader of {fresh.head.version} has another state")
        for process in self.processes:
            self._check_head(process)

    def _apply(self, data):
        version = len(self.heads)
        after = advance(self.heads[-1], data, TABLE_ID, TABLE, self._read_sidecars)
        self.heads.append(after.head)
        self.entries[entry_name(PREFIX, version)] = data
        for document in after.entry.documents:
            for sign in signs_in(document):
                expect(
                    sign not in self.signs, f"{sign} is in entry {version}, after {self.signs.get(sign) or 'a refusal'}"
                )
                self.signs[sign] = version
                self.counts[sign[0]] += 1
                if sign[0] == "add_files":
                    self._add(sign[1], version)
        check_invariants(after.head.state)
        self._check_rows(after.head.state)

    def _read_sidecars(self, entry):
        self.counts["sidecars"] += len(entry.sidecars)
        self.named |= dict.fromkeys(
            (sidecar_name(PREFIX, sidecar.version, sidecar.digest) for sidecar in entry.sidecars), entry.version
        )
        return SidecarStore(CheckpointLocation(self.inner, PREFIX), TABLE_ID).read(entry)

    def _add(self, file, version):
        request = self.requests.get(file)
        expect(request is None or request not in self.answered, f"{request} is in entry {version} once more")
        self.answered[request] = version
        self.added.update(self.contents[file])

    def _check_rows(self, state):
        seen = Counter()
        for position, partition in enumerate(state.partitions.ids):
            keys = state.partitions.range_at(position)
            for reference in state.references_of(partition):
                inside = [row for row in self.contents[reference.file] if keys.contains(KEYS[row[0]])]
                expect(not reference.exact or reference.rows == len(inside), f"{reference} has {len(inside)} rows")
                seen.update(inside)
        expect(seen == self.added, f"rows lost: {self.added - seen}, doubled or strange: {seen - self.added}")

    def _check_objects(self, state):
        for file in state.referenced().values():
            expect(data_name(TABLE_ID, file) in self.inner.last_modified_times, f"{file.id} is referenced and gone")

    def _check_head(self, process):
        head = process.log.head
        if head is not process.seen:
            expect(head.version < len(self.heads), f"{process.name} knows entry {head.version}, which is not there")
            known = self.heads[head.version]
            expect(head.digest == known.digest, f"{process.name} has another entry {head.version}")
            expect(head.state == known.state, f"{process.name} has another state of {head.version}")
            expect(process.seen is None or head.version >= process.seen.version, f"{process.name} went back")
            process.seen = head


def expect(holds, promise):
    if not holds:
        raise Violation(promise)


def sign_of(proposal):
    """What tells the proposal in an entry; the log holds none of them twice."""
    match proposal:
        case ProposeFiles():
            return "add_files", proposal.files[0].file.id
        case OpenJob():
            return "open_job", proposal.job.id
        case ProposeOutput():
            return "replace", proposal.job
        case CloseJob():
            return "close_job", proposal.job
        case ProposeSplit():
            return "split_partitions", min(proposal.cuts)
        case CreateTable():
            return "create_table", proposal.table


def signs_in(document):
    outlined = outline(document)
    change, kind = outlined.transaction, outlined.type
    match kind:
        case "add_files" | "retire_files" | "purge_files":
            return [(kind, file if isinstance(file, str) else file.id) for file in change.files]
        case "open_job":
            return [(kind, change.job.id)]
        case "replace" | "close_job":
            return [(kind, change.job)]
        case "split_partitions":
            return [(kind, partition) for partition in change.cuts]
        case "raise_watermark":
            return [(kind, (change.mark.value, change.value))]
        case _:
            return [(kind, change.table)]


# -- what processes do ------------------------------------------------------------------------------------------


def add(world, process):
    """A file, half of the time with a request key: then with other files until the answer is clear, or once more."""
    random = world.schedule.random
    keyed = random.random() < 0.5
    request = f"r{next(world.names)}" if keyed else None
    letters = sorted(random.choices(LETTERS, k=random.randint(1, 5)))
    base = process.log.head.version
    for attempt in range(5):
        # Now and then so late that the request key may be forgotten.
        for _ in range(random.choice([0, 0, 0, 30]) if attempt else 0):
            world.schedule.pause("asks again")
        origin = next(world.names)
        new = world.file([(letter, f"{origin}.{location}") for location, letter in enumerate(letters)])
        if keyed:
            world.requests[new.file.id] = request
        outcome = world.commit(process, ProposeFiles((new,), request, base))
        if not keyed or (isinstance(outcome, Committed) and random.random() < 0.8):
            return


def split(world, process):
    state = process.table.state()
    partition = world.schedule.random.choice(state.partitions.ids)
    letters = sorted(world.schedule.random.sample(LETTERS, world.schedule.random.randint(1, 2)))
    world.commit(process, ProposeSplit({partition: tuple(KEYS[letter] for letter in letters)}))


def compact(world, process):
    """A merge of a partition: its output may be late, proposed again, or never come."""
    random = world.schedule.random
    merges = plan_compaction(process.table.state(), Settings(), Strategy.FULL).merges
    if not merges:
        return
    merge = merges[0]
    for _ in range(random.choice([0, 0, 10, 40])):
        world.schedule.pause("plans on an old snapshot")
    name = f"j{next(world.names)}"
    opened = world.commit(process, OpenJob(Job(name, merge.keys, tuple(f.id for f in merge.inputs), "", 1, 0)))
    if not isinstance(opened, Committed):
        return
    rows = []
    for file in merge.inputs:
        found = world.storage.get(data_name(TABLE_ID, file))
        if found is None:
            expect(name not in world.heads[-1].state.jobs, f"{file.id} is gone from under open job {name}")
            return
        rows += [row for row in world.contents[file.id] if merge.keys.contains(KEYS[row[0]])]
    for _ in range(random.choice([0, 0, 5, 40])):
        world.schedule.pause("is slow")
    if random.random() < 0.1:
        return
    rows.sort()
    middle = random.randrange(len(rows) + 1)
    files = tuple(world.file(part) for part in (rows[:middle], rows[middle:]) if part)
    for _ in range(3):
        if not isinstance(world.commit(process, ProposeOutput(name, files)), Unknown | Contended | None):
            return


def close(world, process):
    """Another's job, as if past its deadline."""
    jobs = sorted(process.table.state().jobs)
    if jobs:
        world.commit(process, CloseJob(world.schedule.random.choice(jobs), "past its deadline"))


def collect(world, process):
    try:
        report = collection.collect_garbage(process.table, batch_files=3)
    except (ContentionError, UnknownOutcomeError):
        return
    world.counts["files deleted"] += report.files
    world.counts["parts swept"] += report.checkpoint_segments
    world.counts["entries truncated"] += report.entries
    world.counts["sidecars swept"] += report.sidecars


def read(world, process):
    """Follow, and read every file of the state within the delay that keeps them."""
    asked_at = world.inner.time
    state = process.table.state()
    for _ in range(world.schedule.random.choice([0, 10, 40, 400])):
        if (world.inner.time - asked_at).total_seconds() < world.history_s - 2:
            world.schedule.pause("reads slowly")
    for file in state.referenced().values():
        if world.storage.get(data_name(TABLE_ID, file)) is None:
            passed_s = (world.inner.time - asked_at).total_seconds()
            expect(passed_s >= world.history_s, f"{file.id} was deleted under a reader after {passed_s} seconds")
            return
