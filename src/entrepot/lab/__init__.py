"""Laboratories: the protocols between nodes, run by the thousand in one process, and measured.

world       nodes without sockets: in rounds, or on a timeline with delays and losses
gossip      the tables and curves of the lectures on gossip, beside what was seen
multicast   the same for multicast
routing     the same for the routing of events
spaces      the same for tuple spaces, groups and shared memory
plots       pictures of them, where matplotlib is installed
"""
