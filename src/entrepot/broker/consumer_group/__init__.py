"""Consumer groups: members that share the partitions of topics, and their committed offsets.

There are two protocols. In the *classic* one a member, the leader, assigns the partitions and
the broker only passes the assignment on (`classic`); in the *modern* one the broker assigns
them and moves each member there step by step (`modern`, with `assignors`). Both are state
machines without I/O: they are given a request and the time, and return what to answer and
what to store. `offsets` holds the committed offsets. The `coordinator` stores what has to be
stored in `__consumer_offsets` (`records`), and answers when that is permanent.
"""
