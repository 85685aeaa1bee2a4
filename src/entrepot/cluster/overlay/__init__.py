"""Overlays: who is whose neighbour, above a network in which everybody can reach everybody.

graph       unstructured ones and trees, made in one place: for simulations
"""
