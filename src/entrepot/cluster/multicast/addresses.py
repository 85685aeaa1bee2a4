"""Addresses of IP multicast: class D, whose first four bits are 1110."""

from __future__ import annotations

from ipaddress import AddressValueError, IPv4Address

CLASS_D = 0b1110


def is_group(host: str) -> bool:
    """Return whether this is the address of a group of IP multicast."""
    try:
        return int(IPv4Address(host)) >> 28 == CLASS_D
    except AddressValueError:
        return False
