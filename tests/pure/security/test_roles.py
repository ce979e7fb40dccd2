import pytest

from lakebed.errors import AccessError, Code, UsageError
from lakebed.server.security.principal import Permission, Principal
from lakebed.server.security.roles import BUILT_IN, Role


def principal(*roles):
    return Principal("p", roles)


ON_T = Role("t", Permission.READ, frozenset({"t"}))
FILTERED = Role("f", Permission.READ, frozenset({"t"}), where="tenant = 'a'", hidden=frozenset({"x"}))


def test_a_permission_includes_those_before_it():
    writer = Principal.everywhere("w", Permission.WRITE)
    writer.require(Permission.READ, "t")
    writer.require(Permission.WRITE)
    with pytest.raises(AccessError, match="w may not admin table t"):
        writer.require(Permission.ADMIN, "t")


def test_a_role_on_some_tables_gives_nothing_on_others_nor_on_all():
    some = principal(ON_T)
    some.require(Permission.READ, "t")
    for table in ("u", None):
        with pytest.raises(AccessError) as raised:
            some.require(Permission.READ, table)
        assert raised.value.code is Code.PERMISSION_MISSING
    assert some.visible(["s", "t"]) == ["t"]


def test_roles_add_up_to_the_highest_permission_of_each_table():
    both = principal(BUILT_IN["read"], Role("w", Permission.WRITE, frozenset({"t"})))
    assert (both.permission("t"), both.permission("u"), both.permission()) == (
        Permission.WRITE,
        Permission.READ,
        Permission.READ,
    )


def test_restrictions_add_up_and_no_other_role_lifts_them():
    both = principal(
        BUILT_IN["admin"],
        FILTERED,
        Role("g", Permission.READ, frozenset({"t"}), where="n > 1", masks=(("x", "1"), ("y", "2"))),
    )
    policy = both.policy("t")
    assert policy.where == "(tenant = 'a'\n) AND (n > 1\n)"
    assert (policy.hidden, policy.masks) == ({"x"}, (("y", "2"),))
    assert both.policy("u") is None


def test_a_principal_with_a_part_of_a_table_may_not_change_it_nor_see_its_files():
    part = principal(BUILT_IN["admin"], FILTERED)
    part.require(Permission.READ, "t")
    with pytest.raises(AccessError) as raised:
        part.require(Permission.WRITE, "t")
    assert raised.value.code is Code.PERMISSION_MISSING
    with pytest.raises(AccessError, match="sees only a part"):
        part.require_all_rows("t")
    with pytest.raises(AccessError, match="every table"):
        part.require(Permission.READ)
    part.require_all_rows("u")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": "-x"}, "role name '-x'"),
        ({"tables": frozenset()}, "an empty list"),
        ({"tables": frozenset({"a b"})}, "not the name of a table"),
        ({"where": "n > 1", "permission": Permission.WRITE}, "must be read, not write"),
        ({"hidden": frozenset({"x"})}, "name the tables"),
        ({"hidden": frozenset({"x"}), "masks": (("x", "1"),)}, "x is hidden and masked"),
    ],
)
def test_an_invalid_role_is_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        Role(**({"name": "r", "permission": Permission.READ} | arguments))


def test_a_role_comes_back_from_its_document():
    role = Role("r", Permission.READ, frozenset({"t", "s"}), "n > 1", frozenset({"x"}), (("y", "NULL"),))
    assert Role.from_json(role.to_json()) == role
    for broken in ({}, role.to_json() | {"tables": "t"}, role.to_json() | {"permission": "god"}):
        with pytest.raises(UsageError) as raised:
            Role.from_json(broken)
        assert raised.value.code is Code.ROLE_INVALID
