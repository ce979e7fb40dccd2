import base64
import datetime as dt
import hmac
import json

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

import lakebed
from lakebed import clock
from lakebed.errors import AccessError, Code, NotFoundError, UsageError
from lakebed.server.security.authentication import BearerAuthenticator
from lakebed.server.security.identity_tokens import LEEWAY_S, IdentityRules, IdentityTokens
from lakebed.server.security.principal import Permission
from lakebed.server.security.stored import AccessList
from tests.clocks import set_clock

RSA, EC, OTHER = (
    RSAKey.generate_key(2048, {"kid": "rsa", "use": "sig"}),
    ECKey.generate_key("P-256", {"kid": "ec"}),
    RSAKey.generate_key(2048, {"kid": "rsa"}),
)
RULES = IdentityRules("https://id.example", "lakebed", {"data-team": "read", "ops": "admin"}, "groups", "email")


@pytest.fixture
def keys(tmp_path):
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps(KeySet([RSA, EC]).as_dict(private=False)))
    return path


@pytest.fixture
def access(tmp_path):
    found = AccessList(lakebed.create(str(tmp_path / "lake")).storage)
    yield found
    found.close()


@pytest.fixture
def identities(keys, access):
    return IdentityTokens(keys, RULES, access)


def claims(**changes):
    now = int(clock.now().timestamp())
    found = {
        "iss": RULES.issuer,
        "aud": RULES.audience,
        "exp": now + 600,
        "email": "ann@x.example",
        "groups": ["staff", "data-team"],
    }
    return {name: value for name, value in (found | changes).items() if value is not None}


def signed(key=RSA, algorithm="RS256", **changes):
    return jwt.encode({"alg": algorithm, "kid": key.kid}, claims(**changes), key)


def test_a_signed_token_becomes_a_principal_with_the_mapped_roles(identities):
    ann = identities.principal_of(signed())
    assert (ann.name, ann.permission()) == ("jwt:ann@x.example", Permission.READ)
    assert identities.principal_of(signed(EC, "ES256", groups="ops")).permission() is Permission.ADMIN
    assert identities.principal_of(signed(aud=["other", "lakebed"])).name == "jwt:ann@x.example"


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://evil.example"},
        {"iss": None},
        {"aud": "other"},
        {"aud": None},
        {"exp": None},
        {"exp": 1},
        {"exp": "soon"},
        {"nbf": 4_000_000_000},
        {"email": None},
        {"email": 7},
        {"groups": ["staff"]},
        {"groups": None},
        {"groups": {"ops": True}},
        {"groups": ["admin"]},
    ],
)
def test_a_token_with_other_claims_is_refused(identities, changes):
    with pytest.raises(AccessError) as raised:
        identities.principal_of(signed(**changes))
    assert raised.value.code is Code.NOT_AUTHENTICATED


def test_a_token_ends_a_little_after_it_expires(identities, monkeypatch):
    text, now = signed(), clock.now()
    for seconds, passes in ((600 + LEEWAY_S - 5, True), (600 + LEEWAY_S + 5, False)):
        set_clock(monkeypatch, now=lambda later=now + dt.timedelta(seconds=seconds): later)
        if passes:
            identities.principal_of(text)
        else:
            with pytest.raises(AccessError, match="expired"):
                identities.principal_of(text)


def encoded(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def unsigned():
    return f"{encoded(json.dumps({'alg': 'none', 'kid': 'rsa'}).encode())}.{encoded(json.dumps(claims()).encode())}."


def by_public_key_as_secret():
    """The public key, which everyone has, as the secret of a symmetric algorithm."""
    head = f"{encoded(json.dumps({'alg': 'HS256', 'kid': 'rsa'}).encode())}.{encoded(json.dumps(claims()).encode())}"
    return f"{head}.{encoded(hmac.digest(RSA.as_pem(private=False), head.encode(), 'sha256'))}"


def cut():
    return signed()[:-10]


def changed():
    head, _, signature = signed().split(".")
    return f"{head}.{signed(groups=['ops']).split('.')[1]}.{signature}"


@pytest.mark.parametrize(
    "forged",
    [
        unsigned,
        by_public_key_as_secret,
        cut,
        changed,
        lambda: signed(OTHER),
        lambda: "",
        lambda: "a.b.c",
        lambda: "é" * 9,
        lambda: "." * 5000,
    ],
)
def test_a_forged_token_is_refused_and_not_repeated(identities, forged):
    text = forged()
    with pytest.raises(AccessError) as caught:
        identities.principal_of(text)
    assert not text or text not in caught.value.message


def test_a_new_key_set_is_used_as_soon_as_its_file_changes(identities, keys, caplog):
    new = RSAKey.generate_key(2048, {"kid": "new"})
    with pytest.raises(AccessError) as raised:
        identities.principal_of(signed(new))
    assert raised.value.code is Code.NOT_AUTHENTICATED
    fresh = keys.with_suffix(".new")
    fresh.write_text(json.dumps(KeySet([new]).as_dict(private=False)))
    fresh.replace(keys)
    identities.principal_of(signed(new))
    with pytest.raises(AccessError) as raised:
        identities.principal_of(signed())
    assert raised.value.code is Code.NOT_AUTHENTICATED
    keys.write_text("no key set")
    identities.principal_of(signed(new))
    assert "stay in force" in caplog.text
    keys.unlink()
    identities.principal_of(signed(new))


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "\0"])
def test_a_file_that_is_no_set_of_public_keys_is_refused(tmp_path, access, text):
    path = tmp_path / "jwks.json"
    path.write_text(text)
    with pytest.raises(UsageError, match="not a set of public keys"):
        IdentityTokens(path, RULES, access)


def test_tokens_of_both_kinds_pass_one_authenticator(identities, access):
    authenticator = BearerAuthenticator(access, identities)
    assert authenticator.authenticate(f"Bearer {signed()}").name == "jwt:ann@x.example"
    with pytest.raises(AccessError, match="unknown, or was revoked"):
        authenticator.authenticate("Bearer lakebed_00")
    with pytest.raises(NotFoundError) as raised:
        access.check_roles(["god"])
    assert raised.value.code is Code.ROLE_NOT_FOUND
