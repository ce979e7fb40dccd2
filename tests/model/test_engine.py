"""The same schedules are run however they are divided among processes."""

from .engine import run_seeds, run_slices
from .truncation.model import TRIMMING
from .truncation.rules import Rules


def test_slices_on_several_cores_show_what_one_process_shows() -> None:
    build = TRIMMING.world_of(None, Rules())
    assert run_slices(250, build, slice_schedules=100) == run_seeds(range(250), build)


def test_a_violation_comes_back_from_another_process() -> None:
    build = TRIMMING.world_of(None, Rules(created="no log start"))
    sliced, alone = run_slices(600, build, slice_schedules=100), run_seeds(range(600), build)
    assert sliced.first_bad is not None
    assert alone.first_bad is not None
    assert sliced.first_bad[0] == alone.first_bad[0]
    assert str(sliced.first_bad[1]) == str(alone.first_bad[1])
