"""Multicast between nodes: one message to many, by many ways.

replication the baseline: the source sends a copy to each receiver
forwarding  over neighbours: flooding, with a hop limit, random walks, by chance, by counter
scribe      a tree for each group, grown along the routes of Chord
addresses   which addresses are groups of IP multicast
"""
