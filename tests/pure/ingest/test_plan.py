"""The batcher: requests of so many MiB in, a word a job out."""

from unittest.mock import patch

from hypothesis import given
from hypothesis import strategies as st

from lakebed.model.settings import GIB, MIB, Settings
from lakebed.model.state.table_state import IngestRequest, Source
from lakebed.write import plan as ingest_plan
from lakebed.write.plan import OPEN_JOBS_MAX, SORT_BYTES_MAX, Method, divided, due, job_of, plan

DEFAULTS = Settings()


def request(name, mib, failures=0, submitted=1):
    return IngestRequest(name, (Source(f"s3://inbox/{name}", mib * MIB, "1"),), 1, submitted, failures, 0, "")


def requests(text):
    """``a:10 b:20!``: requests of so many MiB; one with a ``!`` failed before."""
    named = (word.split(":") for word in text.split())
    return [request(name, int(size.rstrip("!")), failures=size.count("!")) for name, size in named]


def planned(text, oldest_s=0.0, *, force=False, **settings):
    """``ab c | de``: jobs, and after the bar what waits."""
    found = plan(requests(text), Settings(**settings), oldest_s, force=force)
    jobs = " ".join("".join(job.ids) for job in found.jobs)
    return f"{jobs} | {''.join(r.id for r in found.waiting)}".strip()


def test_nothing_waits_for_nothing():
    assert planned("", oldest_s=10**6, force=True) == "|"


def test_a_little_waits_for_more():
    assert planned("a:10 b:20", oldest_s=299.9) == "| ab"


def test_enough_bytes_are_due_at_once():
    assert planned("a:512 b:511") == "| ab"
    assert planned("a:512 b:512") == "ab |"


def test_what_is_old_takes_all_else_along():
    assert planned("a:1 b:1", oldest_s=300) == "ab |"


def test_a_forced_ingest_waits_for_nothing():
    assert planned("a:1 b:1", force=True) == "ab |"


def test_a_job_is_full_at_so_many_bytes_or_files():
    """And a later request that is small enough still goes into the first that has room."""
    assert planned("a:3 b:3 c:2 d:1", force=True, ingest_bytes_max=5 * MIB) == "ac bd |"
    small = plan([request(f"{number:03d}", 1) for number in range(101)], DEFAULTS, 0, force=True)
    assert [len(job.ids) for job in small.jobs] == [100, 1]


def test_a_request_that_is_larger_than_a_job_may_be_is_one_by_itself():
    assert planned("a:1 b:9 c:1", force=True, ingest_bytes_max=5 * MIB) == "ac b |"


def test_the_oldest_come_first():
    young, old = request("a", 1, submitted=9), request("b", 1, submitted=2)
    (job,) = plan([young, old], DEFAULTS, 0, force=True).jobs
    assert job.ids == ("b", "a")


def test_what_failed_before_costs_no_other_its_work():
    assert planned("a:1 b:1! c:1 d:1!", force=True) == "ac b d |"


def test_a_large_job_is_shuffled_unless_someone_knows_better():
    size = SORT_BYTES_MAX // MIB
    for mib, method in ((size, Method.SORT), (size + 1, Method.SHUFFLE)):
        assert plan([request("a", mib)], DEFAULTS, 0, force=True).jobs[0].method is method
    assert plan([request("a", 1)], DEFAULTS, 0, force=True, method=Method.SHUFFLE).jobs[0].method is Method.SHUFFLE


def parts(text, url=None):
    return " ".join("".join(job.ids) for job in divided(job_of(requests(text)), url))


def test_a_job_that_failed_is_parted_at_the_file_at_fault_or_in_the_middle():
    assert parts("a:1 b:1 c:1", "s3://inbox/b") == "ac b"
    assert parts("a:1 b:1 c:1") == "a bc"
    assert parts("a:1 b:1 c:1", "s3://elsewhere/b") == "a bc"


SIZES = st.lists(st.tuples(st.integers(0, 8 * MIB), st.integers(0, 1)), max_size=40)


@given(sizes=SIZES, bytes_max=st.integers(1, 12 * MIB), files_max=st.integers(1, 6), oldest_s=st.integers(0, 600))
def test_every_request_is_in_one_job_or_waits_and_no_job_is_too_large(sizes, bytes_max, files_max, oldest_s):
    settings = Settings(ingest_bytes_max=bytes_max, ingest_bytes_min=64 * MIB)
    held = [
        IngestRequest(str(i), (Source(f"/in/{i}", size, "1"),), 1, 1, failures, 0, "")
        for i, (size, failures) in enumerate(sizes)
    ]
    with patch.object(ingest_plan, "JOB_FILES_MAX", files_max):
        found = plan(held, settings, oldest_s)
    placed = [r.id for job in found.jobs for r in job.requests] + [r.id for r in found.waiting]
    assert sorted(placed) == sorted(r.id for r in held)
    assert bool(found.jobs) == bool(held and (oldest_s >= 300 or due(held, settings)))
    for job in found.jobs:
        if len(job.requests) > 1:
            assert sum(r.size_bytes for r in job.requests) <= bytes_max
            assert len(job.requests) <= files_max
            assert not any(r.failures for r in job.requests)


@given(mib=st.lists(st.integers(1, 5), min_size=OPEN_JOBS_MAX * 2, max_size=200))
def test_jobs_are_filled_about_as_well_as_they_can_be(mib):
    """No two of those that may still be filled could be one."""
    settings = Settings(ingest_bytes_max=5 * MIB)
    jobs = plan([request(f"{i:03}", size) for i, size in enumerate(mib)], settings, 0, force=True).jobs
    sizes = [sum(r.size_bytes for r in job.requests) for job in jobs][-OPEN_JOBS_MAX:]
    assert all(a + b > 5 * MIB for i, a in enumerate(sizes) for b in sizes[i + 1 :])


def test_the_defaults_are_a_gibibyte_or_five_minutes_and_jobs_of_five():
    assert (DEFAULTS.ingest_bytes_min, DEFAULTS.ingest_age_s, DEFAULTS.ingest_bytes_max) == (GIB, 300, 5 * GIB)
    assert DEFAULTS.ingest_tries_max == 3
