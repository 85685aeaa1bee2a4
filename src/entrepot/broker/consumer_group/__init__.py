"""Consumer groups: members who share the partitions of topics, and where they are in them.

Two protocols are spoken. In the *classic* one a member, the leader, divides the
partitions and the broker only passes the division on (`classic`); in the *modern* one
the broker divides them and moves each member there step by step (`modern`, with
`assignors`). Both are pure machines: they are told what somebody asks and what time it
is, and say what to answer and what to keep. `offsets` holds what groups have committed.
The `coordinator` is the edge: it keeps what is to be kept in `__consumer_offsets`
(`records`), and answers when that is permanent.
"""
