"""The hash is checked against values that Kafka's Java client gives."""

import pytest

from entrepot.core.partitioner import murmur2, partition_of

# From Kafka's own test of its hash; negative there, because Java's int is signed.
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", VECTORS)
def test_the_hash_is_javas(key: bytes) -> None:
    assert murmur2(key) == VECTORS[key] & 0xFFFFFFFF


def test_a_negative_hash_gives_a_legal_partition() -> None:
    assert partition_of(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
