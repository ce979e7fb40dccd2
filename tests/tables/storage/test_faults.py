"""Each fault does what the table in its module says, and is counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakebed.clock import random_token
from lakebed.errors import Code, DamagedError, StorageError, UnsafeStoreError
from lakebed.storage import PutOutcome, Storage, check_conditional_puts, connect, keeps_replace_if
from lakebed.storage.contract import Version
from lakebed.storage.digests import digest_bytes
from lakebed.testing.conformance import StorageConformance
from lakebed.testing.faults import CountingStorage, Fault, FaultPlan, FaultyStorage, Rule
from tests.clocks import set_clock


class TestFaultlessStorage(StorageConformance):
    """Without rules it is the store behind it."""

    @pytest.fixture
    def storage(self) -> Storage:
        return FaultyStorage(connect(f"memory://{random_token()}"), FaultPlan([]))


class TestCountingStorage(StorageConformance):
    @pytest.fixture
    def storage(self) -> Storage:
        return CountingStorage(connect(f"memory://{random_token()}"))


def faulty(*rules: Rule, seed: int = 0) -> FaultyStorage:
    return FaultyStorage(connect(f"memory://{random_token()}"), FaultPlan(rules, seed))


@pytest.mark.parametrize(
    ("fault", "left"), [(Fault.FAIL_BEFORE, None), (Fault.FAIL_AFTER, b"1"), (Fault.CONFLICT, None)]
)
def test_an_unclear_create(fault: Fault, left: bytes | None) -> None:
    storage = faulty(Rule(fault, "create", calls={1}))
    assert storage.create("log/1", b"1") is PutOutcome.UNCLEAR
    assert storage.get("log/1") == left
    again = storage.create("log/1", b"1")
    assert again is (PutOutcome.CREATED if left is None else PutOutcome.EXISTS)
    assert storage.fired == {fault: 1}


def test_a_late_create_can_beat_its_own_repetition() -> None:
    """put -> no answer; [takes effect]; put again -> exists."""
    storage = faulty(Rule(Fault.LATE, "create", calls={1}, later_calls=2))
    assert storage.create("log/1", b"mine") is PutOutcome.UNCLEAR
    assert storage.get("log/1") is None
    assert storage.create("log/1", b"mine") is PutOutcome.EXISTS
    assert storage.get("log/1") == b"mine"


def test_a_late_create_may_find_the_name_taken() -> None:
    storage = faulty(Rule(Fault.LATE, "create", calls={1}, later_calls=100))
    storage.create("log/1", b"mine")
    assert storage.create("log/1", b"theirs") is PutOutcome.CREATED
    storage.settle()
    assert storage.get("log/1") == b"theirs"


@pytest.mark.parametrize(
    ("fault", "left", "transient"),
    [
        (Fault.FAIL_BEFORE, b"old", True),
        (Fault.FAIL_AFTER, b"new", True),
        (Fault.LATE, b"new", True),
        (Fault.FULL, b"old", False),
    ],
)
def test_a_failed_replace(fault: Fault, left: bytes, transient: bool) -> None:
    storage = faulty(Rule(fault, "replace", calls={2}))
    storage.replace("pins/1", b"old")
    with pytest.raises(StorageError) as caught:
        storage.replace("pins/1", b"new")
    assert caught.value.transient is transient
    assert storage.get("pins/1") == left


def test_a_full_disk_stores_nothing(tmp_path: Path) -> None:
    storage = faulty(Rule(Fault.FULL))
    sent = tmp_path / "f"
    sent.write_bytes(b"x")
    for call in (lambda: storage.create("a", b""), lambda: storage.send("a", sent), lambda: storage.replace("a", b"")):
        with pytest.raises(StorageError, match="full"):
            call()
    assert list(storage.list("")) == []


def test_damaged_bytes_are_short_or_one_bit_off() -> None:
    storage = faulty(Rule(Fault.SHORT, "get", calls={1}), Rule(Fault.FLIPPED, "get", calls={2}))
    storage.create("a", b"12345678")
    assert storage.get("a") == b"1234"
    flipped = storage.get("a")
    assert flipped is not None
    assert sum((x ^ y).bit_count() for x, y in zip(flipped, b"12345678", strict=True)) == 1
    assert storage.get("a") == b"12345678"


@pytest.mark.parametrize("fault", [Fault.SHORT, Fault.FLIPPED])
def test_a_damaged_fetch_is_noticed_by_its_digest(fault: Fault) -> None:
    storage = faulty(Rule(fault, "fetch"))
    storage.create("data/f", b"12345678")
    with pytest.raises(DamagedError, match="data/f"), storage.fetch("data/f", digest=digest_bytes(b"12345678")):
        pytest.fail("entered")
    with storage.fetch("data/f") as path:
        assert path.read_bytes() != b"12345678"


def test_a_rule_names_operation_and_objects() -> None:
    storage = faulty(Rule(Fault.FAIL_BEFORE, "get", name="t/log/*"))
    storage.create("t/log/1", b"")
    assert storage.get("t/data/1") is None
    with pytest.raises(StorageError) as raised:
        storage.get("t/log/1")
    assert raised.value.code is Code.STORE_UNAVAILABLE


def test_one_seed_is_one_run() -> None:
    def run(seed: int) -> list[PutOutcome]:
        storage = faulty(Rule(Fault.FAIL_BEFORE, "create", probability=0.3), seed=seed)
        return [storage.create(f"log/{n}", b"") for n in range(200)]

    assert run(1) == run(1) != run(2)
    assert 30 < run(1).count(PutOutcome.UNCLEAR) < 90


def test_calls_are_counted_by_name() -> None:
    storage = CountingStorage(connect(f"memory://{random_token()}"))
    storage.create("a", b"")
    storage.get("a")
    storage.get("b")
    storage.delete(["a", "b"])
    assert storage.calls == {"create": 1, "get": 2, "delete": 2}
    assert storage.names["get"] == ["a", "b"]
    storage.clear()
    assert storage.calls == {}


class Overwriting(CountingStorage):
    """Accepts the condition of a create, and ignores it."""

    def create(self, name: str, data: bytes) -> PutOutcome:
        self.inner.replace(name, data)
        return PutOutcome.CREATED


class Cached(CountingStorage):
    """Answers with the first "not there" for ever."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner)
        self._absent: set[str] = set()

    def get(self, name: str) -> bytes | None:
        found = None if name in self._absent else super().get(name)
        if found is None:
            self._absent.add(name)
        return found


@pytest.mark.parametrize(("kind", "says"), [(Overwriting, "both believe"), (Cached, "stale")])
def test_a_store_that_breaks_the_rules_is_found_out(kind: type[CountingStorage], says: str) -> None:
    inner = connect(f"memory://{random_token()}")
    with pytest.raises(UnsafeStoreError, match=says):
        check_conditional_puts(kind(inner))
    assert list(inner.list("")) == []


class Replacing(CountingStorage):
    """Accepts the condition of a replace, and ignores it."""

    def replace_if(self, name: str, version: Version, data: bytes) -> PutOutcome:
        self.inner.replace(name, data)
        return PutOutcome.CREATED


class Restoring(CountingStorage):
    """Minds the condition where something is there, and ignores it where nothing is."""

    def replace_if(self, name: str, version: Version, data: bytes) -> PutOutcome:
        if self.inner.get(name) is None:
            self.inner.replace(name, data)
            return PutOutcome.CREATED
        return self.inner.replace_if(name, version, data)


class Refusing(CountingStorage):
    """Cannot."""

    def replace_if(self, name: str, version: Version, data: bytes) -> PutOutcome:
        raise Code.CREATE_NOT_EXCLUSIVE("cannot", transient=False)


@pytest.mark.parametrize("kind", [Replacing, Restoring, Refusing, Cached])
def test_a_store_that_replaces_another_version_is_found_out(kind: type[CountingStorage]) -> None:
    inner = connect(f"memory://{random_token()}")
    assert not keeps_replace_if(kind(inner))
    assert list(inner.list("")) == []


def test_whether_a_version_is_kept_is_not_guessed_from_a_lost_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    set_clock(monkeypatch, sleep=lambda _: None)
    with pytest.raises(StorageError, match="no clear answer") as caught:
        keeps_replace_if(faulty(Rule(Fault.FAIL_BEFORE, "replace_if")))
    assert not isinstance(caught.value, UnsafeStoreError)
    assert keeps_replace_if(faulty(Rule(Fault.FAIL_AFTER, "replace_if", calls={1, 3})))


@pytest.mark.parametrize(
    ("fault", "after", "again"),
    [
        (Fault.FAIL_BEFORE, b"1", PutOutcome.CREATED),
        (Fault.CONFLICT, b"1", PutOutcome.CREATED),
        (Fault.FAIL_AFTER, b"2", PutOutcome.EXISTS),
        (Fault.LATE, b"1", PutOutcome.EXISTS),
    ],
)
def test_an_unclear_replace_of_a_version_is_settled_by_the_same_again(
    fault: Fault, after: bytes, again: PutOutcome
) -> None:
    """A late one takes effect before the second, which then meets its own bytes."""
    storage = faulty(Rule(fault, "replace_if", calls={1}))
    storage.create("log_start", b"1")
    one = storage.get_versioned("log_start")
    assert one is not None
    assert storage.replace_if("log_start", one.version, b"2") is PutOutcome.UNCLEAR
    assert storage.inner.get("log_start") == after
    assert storage.replace_if("log_start", one.version, b"2") is again
    assert storage.get("log_start") == b"2"


def test_a_store_that_never_answers_is_not_called_unsafe() -> None:
    with pytest.raises(StorageError, match="no clear answer") as caught:
        check_conditional_puts(faulty(Rule(Fault.FAIL_BEFORE, "create")))
    assert not isinstance(caught.value, UnsafeStoreError)


def test_an_answer_lost_once_does_not_make_a_store_unsafe() -> None:
    check_conditional_puts(faulty(Rule(Fault.FAIL_AFTER, "create", calls={1, 3})))
