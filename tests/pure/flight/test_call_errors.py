"""Each class of errors has a status, and no answer has a traceback or a path of this machine."""

from __future__ import annotations

import traceback

import pytest
from pyarrow import flight

from lakebed.errors import Code, Error
from lakebed.server.flight.flight_server import bearer_of_password
from lakebed.server.flight.statement_runs import InvalidArgument, NotFound, call_error, call_errors


@pytest.mark.parametrize(
    ("code", "cls"),
    [
        (Code.SQL_INVALID, InvalidArgument),
        (Code.COLUMN_MISSING, InvalidArgument),
        (Code.TABLE_EXISTS, InvalidArgument),
        (Code.VIEW_READ_ONLY, InvalidArgument),
        (Code.TABLE_NOT_FOUND, NotFound),
        (Code.VERSION_NOT_RETAINED, NotFound),
        (Code.NOT_AUTHENTICATED, flight.FlightUnauthenticatedError),
        (Code.PERMISSION_MISSING, flight.FlightUnauthorizedError),
        (Code.SERVICE_BUSY, flight.FlightUnavailableError),
        (Code.STORE_UNAVAILABLE, flight.FlightUnavailableError),
        (Code.COMMIT_UNKNOWN, flight.FlightTimedOutError),
        (Code.DATA_FILE_DAMAGED, flight.FlightInternalError),
    ],
)
def test_the_class_decides_the_status_and_the_message_has_the_code(code, cls):
    found = call_error(code("what happened"))
    assert type(found) is cls
    assert str(found) == f"{code.value}: what happened"


def test_every_code_has_a_status():
    assert all(isinstance(call_error(code("x")), Exception) for code in Code)


def test_a_bug_is_logged_and_not_sent(caplog):
    found = call_error(ZeroDivisionError("secret"))
    assert isinstance(found, flight.FlightInternalError)
    assert "secret" not in str(found)
    assert "ZeroDivisionError: secret" in caplog.text


def test_an_error_is_translated_once():
    with pytest.raises(NotFound) as caught, call_errors(), call_errors():
        raise Code.TABLE_NOT_FOUND("x")
    assert str(caught.value) == "table_not_found: x"


def test_a_traceback_of_an_answer_cannot_be_made():
    # PyArrow then sends the name of the class in its place; tests/service/test_flight_sql.py sees what arrives.
    with pytest.raises(RuntimeError):
        traceback.format_exception(InvalidArgument("x"))


def test_a_password_is_a_token():
    assert bearer_of_password("Basic " + "dXNlcjphOmI=") == "Bearer a:b"
    assert bearer_of_password("Bearer abc") is None


@pytest.mark.parametrize("encoded", ["", "!", "dXNlcg==", "dXNlcjo=", "/w=="])
def test_a_password_that_is_missing_is_not_authenticated(encoded):
    with pytest.raises(Error) as caught:
        bearer_of_password(f"Basic {encoded}")
    assert caught.value.code is Code.NOT_AUTHENTICATED
