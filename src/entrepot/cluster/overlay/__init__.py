"""Overlays: who is whose neighbour, above a network in which everybody can reach everybody.

graph       unstructured ones and trees, made in one place: for simulations
chord       a ring with fingers that nodes keep themselves: keys are found in log N hops
"""
