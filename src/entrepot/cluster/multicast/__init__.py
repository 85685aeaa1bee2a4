"""Multicast between nodes: one message to many, by many ways.

forwarding  over neighbours: flooding, with a hop limit, random walks, by chance, by counter
"""
