"""Shows the roles of docstrings (:class:`lakebed.Table`, :func:`open`) as code, because Markdown has no roles."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`~?([^`]+)`")


class Roles(griffe.Extension):
    """Rewrites each docstring once, when its object has been read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Replace every role by its target, as code."""
        if obj.docstring is not None:
            obj.docstring.value = ROLE.sub(r"`\1`", obj.docstring.value)
