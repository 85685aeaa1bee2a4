"""Which partition a record goes to, chosen as Kafka's Java client does.

A key always goes to the same partition, and to the same one from every client that
hashes this way. Records without a key stay together for a batch and then move on:
full batches, evenly spread.
"""

_MASK = 0xFFFFFFFF
_SEED = 0x9747B28C
_M = 0x5BD1E995


def murmur2(data: bytes) -> int:
    """Return the murmur2 hash of the data, an unsigned number of 32 bits."""
    size = len(data)
    result = _SEED ^ size
    whole = size & ~3
    for position in range(0, whole, 4):
        k = int.from_bytes(data[position : position + 4], "little") * _M & _MASK
        k = (k ^ k >> 24) * _M & _MASK
        result = (result * _M & _MASK) ^ k
    if whole < size:
        result = (result ^ int.from_bytes(data[whole:], "little")) * _M & _MASK
    result = (result ^ result >> 13) * _M & _MASK
    return result ^ result >> 15


def partition_of(key: bytes, count: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % count
