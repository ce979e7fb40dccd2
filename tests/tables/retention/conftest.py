"""Every file has a summary here, however small: that it goes with its file is to be seen."""

import pytest


@pytest.fixture(autouse=True)
def _all_have_summaries(small_summaries):
    return small_summaries
