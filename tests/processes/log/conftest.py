"""The fixtures of tests/tables/log."""

from tests.tables.log.conftest import (  # noqa: F401
    _checkpoints_at_once,
    _no_waiting,
    checkpoints_later,
    real_waiting,
    store,
)
