"""The pages for people; each has a twin in JSON."""

from typing import Any

ROUTES: tuple[Any, ...] = ()
