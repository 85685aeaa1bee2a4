"""Brokers that relay messages for each other: docs/guides/links.md."""
