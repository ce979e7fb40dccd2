"""One actor runs at a time, as a seed draws it, and lets another go on at each request to a store, sleep or lock.

Each actor is a greenlet: a stack of its own, which stands still inside a call until the schedule resumes it. So the
code under test is the real one, and the same seed gives the same run. Often one actor sleeps for long, since rare races
need a very slow one.
"""

from datetime import UTC, datetime, timedelta

from greenlet import getcurrent, greenlet
from msgspec.structs import replace

from lakebed.errors import StorageError
from lakebed.log.backends.objects import ObjectLog, ObjectLogs
from lakebed.storage.contract import PutOutcome


class Killed(BaseException):
    """The actor's process is gone; it does nothing more."""


class Stuck(AssertionError):
    """The schedule does not come to an end."""


class Actor:
    def __init__(self, schedule, name, work):
        self.name = name
        self.done = False
        self.killed = False
        self.error = None
        self.waits_for = None
        self._schedule = schedule
        self._work = work
        self._greenlet = greenlet(self._live)

    def step(self):
        """Run to the next request."""
        # Another actor may have made this one.
        self._greenlet.parent = getcurrent()
        self._greenlet.switch()

    def pause(self):
        self._greenlet.parent.switch()
        if self.killed:
            raise Killed

    def _live(self):
        self._schedule.by_greenlet[self._greenlet] = self
        try:
            if not self.killed:
                self._work()
        except Killed:
            pass
        except BaseException as error:  # noqa: BLE001 - reported by the schedule, whatever it is
            self.error = error
        finally:
            self.done = True
            self._schedule.by_greenlet.pop(self._greenlet)


class Schedule:
    STEPS_MAX = 20_000

    def __init__(self, random):
        self.random = random
        self.actors = []
        self.trace = []
        self.by_greenlet = {}
        self.steps = 0
        self._last = None
        self._sleeper = random.randrange(12)
        self._asleep = random.randrange(200)
        self._awake = self._asleep + random.randrange(300)
        self._stickiness = random.choice([0.1, 0.5, 0.8])

    def spawn(self, name, work):
        actor = Actor(self, name, work)
        self.actors.append(actor)
        return actor

    def running(self):
        """The actor that runs; None in a check, or on a thread of a pool."""
        return self.by_greenlet.get(getcurrent())

    def pause(self, what, waits_for=None):
        """Let others go first. What is not an actor (a check, a thread of a pool) just goes on."""
        actor = self.running()
        if actor is not None:
            self.trace.append(f"{actor.name}: {what}")
            actor.waits_for = waits_for
            actor.pause()
            actor.waits_for = None

    def say(self, what):
        actor = self.running()
        self.trace.append(f"{'' if actor is None else actor.name}: {what}")

    def run(self, after_step):
        """Step actors until all are done; raises what an actor, or the check after each step, raised."""
        while True:
            self.actors = [actor for actor in self.actors if not actor.done]
            if not self.actors:
                return
            ready = [a for a in self.actors if a.killed or a.waits_for is None or not a.waits_for.held]
            if not ready or self.steps > self.STEPS_MAX:
                raise Stuck(f"{len(self.actors)} actors are not done after {self.steps} steps, {len(ready)} can go on")
            self.steps += 1
            actor = self._chosen(ready)
            actor.step()
            if actor.error is not None:
                raise actor.error
            after_step()

    def close(self):
        """End every thread that is left."""
        for actor in self.actors:
            actor.killed = True
        for actor in self.actors:
            while not actor.done:
                actor.step()

    def _chosen(self, ready):
        if self._last in ready and self.random.random() < self._stickiness:
            return self._last
        location = self.random.randrange(len(ready))
        if location == self._sleeper and self._asleep <= self.steps < self._awake and len(ready) > 1:
            location -= 1
        self._last = ready[location]
        return self._last


class Lock:
    """In place of a lock of threads: an actor that waits for it is not chosen."""

    def __init__(self, schedule):
        self.held = False
        self._schedule = schedule

    def acquire(self):
        while self.held:
            assert self._schedule.running() is not None, "held by no actor that can go on"
            self._schedule.pause("waits for a lock", self)
        self.held = True

    def release(self):
        self.held = False

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()


class ClockedStorage:
    """A store in memory by the clock of a simulation: a second passes with each change. Notes what changed."""

    def __init__(self, inner):
        self.inner = inner
        self.url, self.locality, self.folder, self.cache = inner.url, inner.locality, inner.folder, None
        self.time = datetime(2030, 1, 1, tzinfo=UTC)
        self.last_modified_times = {}
        self.changed = set()

    def create(self, name, data):
        outcome = self.inner.create(name, data)
        if outcome is PutOutcome.CREATED:
            self._last_modified(name)
        return outcome

    def replace(self, name, data):
        self.inner.replace(name, data)
        self._last_modified(name)

    def replace_if(self, name, version, data):
        outcome = self.inner.replace_if(name, version, data)
        if outcome is PutOutcome.CREATED:
            self._last_modified(name)
        return outcome

    def get(self, name):
        return self.inner.get(name)

    def get_versioned(self, name):
        return self.inner.get_versioned(name)

    def last_modified(self, name):
        return self.last_modified_times.get(name)

    def now(self):
        return self.time

    def fetch(self, name, *, digest=None):
        return self.inner.fetch(name, digest=digest)

    def delete(self, names):
        doomed = list(names)
        self.inner.delete(doomed)
        for name in doomed:
            self.last_modified_times.pop(name, None)
            self.changed.add(name)

    def list(self, prefix, after=""):
        found = [
            replace(listed, last_modified=self.last_modified_times[listed.name])
            for listed in self.inner.list(prefix, after)
        ]
        return iter(sorted(found, key=lambda listed: listed.name))

    def object_url(self, name):
        return self.inner.object_url(name)

    def _last_modified(self, name):
        self.time += timedelta(seconds=1)
        self.last_modified_times[name] = self.time
        self.changed.add(name)


class TellingLogs:
    """Logs of objects that tell the log start with each create, as a database does."""

    def __init__(self, storage):
        self._logs = ObjectLogs(storage)

    def open(self, prefix):
        return TellingLog(self._logs.open(prefix))


class TellingLog:
    """The log start is read behind the create, before any other actor goes on."""

    def __init__(self, log):
        self.log = log
        self.log_starts = {}

    def __getattr__(self, name):
        return getattr(self.log, name)

    def create(self, version, data, previous=""):
        outcome = self.log.create(version, data, previous)
        if outcome is PutOutcome.CREATED:
            self.log_starts[version] = ObjectLog(self.log.storage.inner.inner, self.log.prefix).log_start()
        return outcome

    def known_log_start(self, version):
        return self.log_starts.get(version)


SLEEP_SHARE = 0.008
SLEEP_STEPS = 250


class SteppedStorage:
    """The store as actors have it: each request lets others go first, and now and then a client repeats a put.

    Some fall asleep right before a request to the log, for long enough to be overtaken by a trimmer.
    """

    def __init__(self, inner, schedule, repeats):
        self.inner = inner
        self.url, self.locality, self.folder, self.cache = inner.url, inner.locality, inner.folder, None
        self._schedule = schedule
        self._repeats = repeats
        self.repeated = 0
        self.slept = 0

    def create(self, name, data):
        if "/log/" in name:
            self._sleep()
        return self._put(f"create {name}", lambda: self.inner.create(name, data))

    def _sleep(self):
        if self._schedule.random.random() < SLEEP_SHARE:
            self.slept += 1
            for _ in range(SLEEP_STEPS):
                self._schedule.pause("is asleep")

    def replace_if(self, name, version, data):
        return self._put(f"replace_if {name}", lambda: self.inner.replace_if(name, version, data))

    def replace(self, name, data):
        self._schedule.pause(f"replace {name}")
        self.inner.replace(name, data)

    def get(self, name):
        self._schedule.pause(f"get {name}")
        if "/log/" in name:
            self._sleep()
        return self.inner.get(name)

    def get_versioned(self, name):
        self._schedule.pause(f"get {name}")
        return self.inner.get_versioned(name)

    def last_modified(self, name):
        self._schedule.pause(f"last-modified time {name}")
        return self.inner.last_modified(name)

    def now(self):
        self._schedule.pause("now")
        return self.inner.now()

    def fetch(self, name, *, digest=None):
        self._schedule.pause(f"fetch {name}")
        return self.inner.fetch(name, digest=digest)

    def delete(self, names):
        doomed = list(names)
        self._schedule.pause(f"delete {' '.join(doomed)}")
        self.inner.delete(doomed)

    def list(self, prefix, after=""):
        self._schedule.pause(f"list {prefix}")
        return self.inner.list(prefix, after)

    def object_url(self, name):
        return self.inner.object_url(name)

    def _put(self, action, put):
        self._schedule.pause(action)
        outcome = put()
        if self._schedule.random.random() < self._repeats:
            # What comes back is the answer to the second request, which may find the first one's object.
            self.repeated += 1
            try:
                outcome = put()
            except StorageError:
                outcome = PutOutcome.UNCLEAR
        self._schedule.say(f"{action} -> {outcome.value}")
        return outcome
