import datetime as dt
import hashlib

import pytest

import lakebed
from lakebed import Schema, clock
from lakebed.errors import AccessError, Code, DamagedError, ExistsError, NotFoundError
from lakebed.server.security import stored
from lakebed.server.security.principal import Permission
from lakebed.server.security.roles import Role
from lakebed.testing.faults import Fault, FaultPlan, FaultyStorage, Rule
from tests.clocks import set_clock
from tests.raising import raises


@pytest.fixture
def storage(tmp_path):
    lake = lakebed.create(str(tmp_path / "lake"))
    lake.create_table("t", Schema({"k": "int64"}, values={"v": "string"}))
    return lake.storage


class Clock:
    def __init__(self, monkeypatch):
        self.passed = 0.0
        # Whole seconds, so that sums are exact, however long this machine has been on.
        began, now = float(int(clock.monotonic_s())), clock.now()
        set_clock(
            monkeypatch, monotonic_s=lambda: began + self.passed, now=lambda: now + dt.timedelta(seconds=self.passed)
        )


@pytest.fixture
def time(monkeypatch):
    return Clock(monkeypatch)


def test_a_token_is_256_random_bits_of_which_only_the_digest_is_stored(storage, tmp_path):
    token, secret = stored.create_token(storage, "ann", ["read"])
    other, second = stored.create_token(storage, "ann", ["read"])
    assert len(bytes.fromhex(secret.removeprefix("lakebed_"))) == 32
    assert secret != second
    assert token.id != other.id
    assert token.digest == hashlib.sha256(secret.encode()).hexdigest()
    kept = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert secret.removeprefix("lakebed_").encode() not in kept
    # Ids of one millisecond are in any order.
    assert {one.id for one in stored.tokens_of(storage)} == {token.id, other.id}


def test_a_token_gives_its_roles_on_its_tables(storage):
    _, secret = stored.create_token(storage, "ann", ["write"], ["t"])
    ann = stored.AccessList(storage).principal_of(secret)
    assert (ann.name, ann.permission("t"), ann.permission("u"), ann.permission()) == (
        "ann",
        Permission.WRITE,
        None,
        None,
    )


@pytest.mark.parametrize("secret", ["", "lakebed_", "lakebed_" + 64 * "0", "x" * 10_000])
def test_an_unknown_token_is_refused(storage, secret):
    stored.create_token(storage, "ann", ["read"])
    with pytest.raises(AccessError, match=r"unknown, or was revoked.* A new token is accepted after 30 s"):
        stored.AccessList(storage).principal_of(secret)


def test_a_token_expires(storage, time):
    _, secret = stored.create_token(storage, "ann", ["read"], expires=clock.now() + dt.timedelta(hours=1))
    access = stored.AccessList(storage)
    time.passed = 3599
    access.principal_of(secret)
    time.passed = 3600
    with pytest.raises(AccessError, match="expired"):
        access.principal_of(secret)


def test_a_revoked_token_is_refused_once_the_list_is_too_old(storage, time):
    token, secret = stored.create_token(storage, "ann", ["read"])
    access = stored.AccessList(storage)
    access.principal_of(secret)
    stored.revoke_token(storage, token.id)
    time.passed = stored.AGE_MAX_S
    with pytest.raises(AccessError) as raised:
        access.principal_of(secret)
    assert raised.value.code is Code.NOT_AUTHENTICATED
    with pytest.raises(NotFoundError, match="no token with the id"):
        stored.revoke_token(storage, token.id)


def test_a_new_token_is_known_once_the_list_is_too_old(storage, time):
    access = stored.AccessList(storage)
    assert not access.any_tokens
    _, secret = stored.create_token(storage, "ann", ["read"])
    time.passed = stored.AGE_MAX_S
    assert access.principal_of(secret).name == "ann"


def test_an_outage_of_the_store_is_survived_for_a_while(storage, time):
    _, secret = stored.create_token(storage, "ann", ["read"])
    failing = FaultyStorage(storage, FaultPlan([]))
    access = stored.AccessList(failing)
    access.principal_of(secret)
    failing.plan = FaultPlan([Rule(Fault.FAIL_BEFORE, "list")])
    time.passed = stored.OUTAGE_MAX_S - 1
    assert access.principal_of(secret).name == "ann"
    time.passed = stored.OUTAGE_MAX_S
    with raises(Code.STORE_UNAVAILABLE):
        access.principal_of(secret)


def test_a_token_with_a_dropped_role_is_refused(storage, time):
    """Its other roles may show what that one hid."""
    stored.create_role(storage, Role("part", Permission.READ, frozenset({"t"}), where="k > 1"))
    _, secret = stored.create_token(storage, "ann", ["read", "part"])
    access = stored.AccessList(storage)
    assert access.principal_of(secret).policy("t").where == "(k > 1\n)"
    stored.drop_role(storage, "part")
    time.passed = stored.AGE_MAX_S
    with pytest.raises(AccessError, match="no role named 'part'"):
        access.principal_of(secret)


def test_roles_are_created_once_and_dropped_once(storage):
    role = Role("r", Permission.READ, frozenset({"t"}), hidden=frozenset({"v"}))
    stored.create_role(storage, role)
    assert stored.roles_of(storage) == {"r": role}
    for taken in (Role("r", Permission.ADMIN), Role("admin", Permission.READ)):
        with pytest.raises(ExistsError) as raised:
            stored.create_role(storage, taken)
        assert raised.value.code is Code.ROLE_EXISTS
    stored.drop_role(storage, "r")
    with pytest.raises(NotFoundError, match="the roles: read, write, admin"):
        stored.drop_role(storage, "r")


@pytest.mark.parametrize(
    ("name", "roles", "tables", "code"),
    [
        ("", ["read"], None, Code.ROLE_INVALID),
        ("a b", ["read"], None, Code.ROLE_INVALID),
        ("a", [], None, Code.ROLE_INVALID),
        ("a", ["god"], None, Code.ROLE_NOT_FOUND),
        ("a", ["read"], ["../x"], Code.ROLE_INVALID),
    ],
)
def test_an_invalid_token_is_not_created(storage, name, roles, tables, code):
    with raises(code):
        stored.create_token(storage, name, roles, tables)
    assert stored.tokens_of(storage) == []


def test_a_damaged_role_costs_its_own_tokens_only(storage, time):
    """Until it is dropped and created again, as the error says; the service knows all others."""
    stored.create_role(storage, Role("clerk", Permission.READ, None, "level < 3"))
    _, clerk = stored.create_token(storage, "ann", ["clerk"])
    _, reader = stored.create_token(storage, "bob", ["read"])
    name = "access/roles/clerk.json"
    storage.replace(name, storage.get(name).replace(b"level < 3", b"level < 7"))
    access = stored.AccessList(storage)
    assert access.principal_of(reader).name == "bob"
    with pytest.raises(AccessError, match="`lakebed role drop clerk`, and create it again"):
        access.principal_of(clerk)
    with pytest.raises(DamagedError, match="the role clerk was changed"):
        stored.roles_of(storage)
    stored.drop_role(storage, "clerk")
    assert stored.roles_of(storage) == {}


def test_a_damaged_token_is_refused_and_can_be_revoked(storage, time):
    token, secret = stored.create_token(storage, "ann", ["read"], expires=dt.datetime(2027, 1, 1, tzinfo=dt.UTC))
    name = f"access/tokens/{token.id}.json"
    storage.replace(name, storage.get(name).replace(b"2027-", b"6027-"))
    access = stored.AccessList(storage)
    assert access.any_tokens
    with pytest.raises(AccessError, match="1 tokens of the instance are damaged"):
        access.principal_of(secret)
    with pytest.raises(DamagedError, match=f"lakebed token drop {token.id}"):
        stored.tokens_of(storage)
    stored.revoke_token(storage, token.id)
    assert stored.tokens_of(storage) == []


def test_a_role_under_the_name_of_another_is_damage(storage):
    stored.create_role(storage, Role("clerk", Permission.READ, None, "level < 3"))
    storage.replace("access/roles/boss.json", storage.get("access/roles/clerk.json"))
    with pytest.raises(DamagedError, match="the role boss is damaged"):
        stored.roles_of(storage)
