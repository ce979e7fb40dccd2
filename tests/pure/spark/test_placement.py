"""Rows in the Spark partition that they are meant for. tests/spark/test_placement.py asks Spark itself."""

from __future__ import annotations

import pytest

from lakebed.spark.scattered import address_of


def spark_hash(value: int) -> int:
    """MurmurHash3 of one 32-bit word with the seed 42, forwards."""

    def rotated(word, bits):
        return (word << bits | word >> 32 - bits) % 2**32

    word = rotated(value * 0xCC9E2D51 % 2**32, 15) * 0x1B873593 % 2**32
    mixed = (rotated(42 ^ word, 13) * 5 + 0xE6546B64) % 2**32 ^ 4
    mixed = (mixed ^ mixed >> 16) * 0x85EBCA6B % 2**32
    mixed = (mixed ^ mixed >> 13) * 0xC2B2AE35 % 2**32
    return mixed ^ mixed >> 16


def test_the_hash_is_that_of_spark():
    # `SELECT hash(0), hash(1)`, as signed numbers.
    assert spark_hash(0) == 933211791
    assert spark_hash(1) == -559580957 + 2**32


@pytest.mark.parametrize("partition", [*range(64), 4999, 2**31 - 1])
def test_an_address_has_the_hash_that_is_its_partition(partition):
    address = address_of(partition)
    assert -(2**31) <= address < 2**31
    assert spark_hash(address) == partition


def test_each_partition_has_an_address_of_its_own():
    assert len({address_of(partition) for partition in range(10_000)}) == 10_000
