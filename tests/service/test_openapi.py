"""The API against requests made from its own OpenAPI document: whatever comes, no answer is the service's failure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

import lakebed
from lakebed.server.service.service import Service
from lakebed.server.web.app import RequestLimits, make_app
from tests.tables.web.cases import ROWS, SCHEMA

if TYPE_CHECKING:
    from schemathesis.core.transport import Response


def is_described(answer: Response) -> None:
    """An error is the document that is described, in JSON, and shows no code."""
    if answer.status_code >= 400:
        error = answer.json()["error"]
        assert {"kind", "code", "message"} <= set(error)
        assert "Traceback" not in error["message"]


def attack(folder: Path, examples: int) -> None:
    """Send that many requests to each operation; the API must not fail, and answer as it says."""
    # Every process of tests imports this file.
    import schemathesis
    from schemathesis.core.failures import FailureGroup
    from schemathesis.python.asgi import shutdown_lifespans

    schemathesis.checks.load_all_checks()
    known = schemathesis.checks.CHECKS
    checks = known.get_by_names(["not_a_server_error", "status_code_conformance", "content_type_conformance"])
    lake = lakebed.create(str(folder / "lake"))
    lake.create_table("t", SCHEMA).write(ROWS)
    app = make_app(Service(lake), limits=RequestLimits(request_s=10.0))
    document = schemathesis.openapi.from_asgi("/v1/openapi.json", app)
    failures: list[str] = []
    tried = 0
    for found in document.get_all_operations():
        operation = found.ok()
        if not operation.path.startswith("/v1/"):
            continue

        @settings(
            max_examples=examples,
            deadline=None,
            database=None,
            derandomize=True,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        @given(case=operation.as_strategy())
        def send(case: Any) -> None:
            if "table" in (case.path_parameters or {}):
                # Names at random find nothing.
                case.path_parameters["table"] = "t"
            for asked in (case.query, case.body):
                if isinstance(asked, dict) and isinstance(version := asked.get("at_least"), int | float):
                    # A version that does not come is waited for, as long as this client waits for an answer.
                    asked["at_least"] = min(version, 1)
            answer = case.call()
            case.validate_response(answer, checks=checks)
            is_described(answer)

        tried += 1
        try:
            send()
        except (Exception, FailureGroup) as error:  # noqa: BLE001 - all operations are tried
            failures.append(f"{operation.label}: {error}")
        if "t" not in lake.tables():
            lake.create_table("t", SCHEMA).write(ROWS)
    # What schemathesis called goes on running, else until this process ends.
    shutdown_lifespans()
    assert tried > 20
    assert not failures, "\n\n".join(failures)


def test_no_request_makes_the_service_fail(tmp_path: Path) -> None:
    attack(tmp_path, 2)


@pytest.mark.slow
def test_no_request_of_many_makes_the_service_fail(tmp_path: Path) -> None:
    attack(tmp_path, 300)
