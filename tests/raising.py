"""How tests expect errors of Lakebed: by their codes, which are stable, and not by their classes or texts."""

from __future__ import annotations

import pytest

from lakebed.errors import Code, Error


def raises(*codes: Code) -> pytest.RaisesExc[Error]:
    """Expect an error with this code, or with one of these."""

    def has_code(error: Error) -> bool:
        assert error.code in codes, f"{error.code}: {error}"
        return True

    return pytest.raises(Error, check=has_code)
