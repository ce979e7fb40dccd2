"""The threads of lookups, and that a request costs no more than it must."""

import asyncio
import threading
import warnings
from contextvars import ContextVar

import pytest
from litestar.exceptions import LitestarDeprecationWarning
from litestar.routes import HTTPRoute

import lakebed
from lakebed.server.service.service import Service
from lakebed.server.web import request_authentication
from lakebed.server.web.app import make_app
from lakebed.server.web.waiting import Lookups
from tests.tables.web.cases import served

asked = ContextVar("asked", default="")


def run(work, threads=2):
    """Run a coroutine function that takes lookups, and end their threads."""
    lookups = Lookups(threads)
    try:
        return asyncio.run(work(lookups))
    finally:
        lookups.close()


def test_a_lookup_returns_or_raises_what_its_function_does():
    async def work(lookups):
        with pytest.raises(ZeroDivisionError):
            await lookups.run(lambda: 1 // 0)
        return await lookups.run(divmod, 7, 2)

    assert run(work) == (3, 1)


def test_a_lookup_belongs_to_the_request_that_asked_for_it():
    async def work(lookups):
        asked.set("here")
        return await lookups.run(asked.get)

    assert run(work) == "here"


def test_a_lookup_that_is_not_waited_for_any_more_holds_up_no_other():
    async def work(lookups):
        begun, go_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def slow():
            loop.call_soon_threadsafe(begun.set)
            go_on.wait(120)

        given_up = asyncio.create_task(lookups.run(slow))
        await begun.wait()
        given_up.cancel()
        go_on.set()
        return await lookups.run(str, 5)

    assert run(work, threads=1) == "5"


def test_no_more_threads_than_allowed_work():
    async def work(lookups):
        return set(await asyncio.gather(*(lookups.run(threading.get_ident) for _ in range(20))))

    assert len(run(work)) <= 2


def test_requests_leave_nothing_behind(tmp_path):
    with served(tmp_path) as client:
        assert client.get("/v1/tables/t/get?key=a&key=1").status_code == 200
        before = request_authentication._parameters.cache_info().currsize
        for _ in range(5):
            assert client.get("/v1/tables/t/scan?limit=1").status_code == 200
        assert request_authentication._parameters.cache_info().currsize <= before + 1


def test_the_application_uses_nothing_deprecated(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error", LitestarDeprecationWarning)
        make_app(Service(lakebed.create(str(tmp_path / "lake")), maintain=False))


def test_no_task_is_started_to_provide_a_parameter(tmp_path):
    app = make_app(Service(lakebed.create(str(tmp_path / "lake")), maintain=False))
    models = [m for r in app.routes if isinstance(r, HTTPRoute) for _, m in r.route_handler_map.values()]
    batches = [batch for model in models for batch in model.dependency_batches]
    assert len(batches) > 100
    assert {len(batch) for batch in batches} == {1}
