"""Class D: the first four bits are 1110."""

from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from entrepot.cluster.multicast.addresses import is_group


def test_class_d() -> None:
    for group in ("224.0.0.0", "224.0.0.1", "239.255.255.255", "232.1.2.3"):
        assert is_group(group)
    for other in ("223.255.255.255", "240.0.0.0", "127.0.0.1", "ff02::1", "group", "", "224.0.0"):
        assert not is_group(other)


@given(st.integers(0, 2**32 - 1))
def test_the_first_four_bits(number: int) -> None:
    assert is_group(str(IPv4Address(number))) == f"{number:032b}".startswith("1110")
