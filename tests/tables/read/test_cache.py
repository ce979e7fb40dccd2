"""What a process keeps of data files: as much as its setting allows, what was used last."""

import pytest

import lakebed
from lakebed.errors import UsageError
from lakebed.files.parquet.read_cache import CacheKind, ReadCache


def kept(cache, names):
    """Which of these are kept; asking for them changes the order, so this is the end of a case."""
    return "".join(name for name in names if cache.get(CacheKind.PAGES, name) is not None)


def test_what_was_used_least_recently_goes_first():
    cache = ReadCache(30)
    for name in "abc":
        cache.keep(CacheKind.PAGES, name, name, 10)
    assert cache.get(CacheKind.PAGES, "a") == "a"
    cache.keep(CacheKind.PAGES, "d", "d", 10)
    assert kept(cache, "abcd") == "acd"


def test_asking_for_many_is_asking_for_each():
    cache = ReadCache(30)
    for name in "abc":
        cache.keep(CacheKind.PAGES, name, name, 10)
    assert cache.get_many(CacheKind.PAGES, [(CacheKind.PAGES, name) for name in "axb"]) == ["a", None, "b"]
    found = cache.stats().pages
    assert (found.hits, found.misses, found.entries, found.size_bytes) == (2, 1, 3, 30)
    cache.keep(CacheKind.PAGES, "d", "d", 10)
    assert kept(cache, "abcd") == "abd"


def test_kinds_are_kept_apart_and_share_the_bound():
    cache = ReadCache(20)
    cache.keep(CacheKind.FILES, "a", "file", 10)
    cache.keep(CacheKind.PAGES, "a", "page", 10)
    cache.keep(CacheKind.PAGES, "a", "other page", 10)
    assert (cache.get(CacheKind.FILES, "a"), cache.get(CacheKind.PAGES, "a")) == ("file", "other page")
    cache.keep(CacheKind.FILTERS, "b", "filter", 10)
    stats = cache.stats()
    assert (stats.files.entries, stats.pages.entries, stats.filters.entries, stats.size_bytes) == (0, 1, 1, 20)


def test_a_value_above_the_bound_pushes_nothing_out():
    cache = ReadCache(30)
    cache.keep(CacheKind.PAGES, "a", "a", 10)
    cache.keep(CacheKind.PAGES, "b", "b", 31)
    assert kept(cache, "ab") == "a"


def test_a_lower_bound_holds_at_once():
    cache = ReadCache(30)
    for name in "abc":
        cache.keep(CacheKind.PAGES, name, name, 10)
    cache.limit(15)
    assert kept(cache, "abc") == "c"


def test_all_that_is_kept_of_a_file_is_forgotten_together():
    cache = ReadCache(100)
    for kind, name in (
        (CacheKind.FILES, "a"),
        (CacheKind.PAGES, ("a", 1, 2)),
        (CacheKind.FILTERS, ("a", 4)),
        (CacheKind.PAGES, ("b", 1)),
    ):
        cache.keep(kind, name, "value", 10)
    cache.drop("a")
    assert cache.get(CacheKind.PAGES, ("b", 1)) == "value"
    assert cache.stats().size_bytes == 10


@pytest.mark.parametrize("size", [-1, 1.5, True, "1"])
def test_a_size_that_is_none_is_refused(size):
    with pytest.raises(UsageError, match="size_bytes"):
        lakebed.set_read_cache_bytes(size)


def test_hit_rates_of_the_process_are_seen(tmp_path):
    import pyarrow as pa

    table = lakebed.create(str(tmp_path / "lake")).create_table(
        "t", lakebed.Schema({"k": "string"}, values={"v": "int64"})
    )
    table.write(pa.table({"k": ["a", "b"], "v": [1, 2]}))
    table.get("a")
    before = lakebed.read_cache_stats()
    table.get("b")
    after = lakebed.read_cache_stats()
    assert after.files.hits > before.files.hits
    assert after.files.misses == before.files.misses
    assert after.to_dict()["pages"]["hit_rate"] == after.pages.hit_rate > 0
    assert "hits" in str(after)
