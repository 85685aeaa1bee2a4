"""Kafka's share groups (KIP-932): consumers that share topics record by record.

settings         the settings of a group
group            its members and their assignments
coordinator      all share groups of this node
sessions         share sessions: what a consumer fetches, and the owner of its locks
share_partition  the state of one partition's records in a group: a ledger, and locks that time out
acquisition      which records a consumer gets, and the batches of the log they are in
dead_letter      copies of rejected records, and of those delivered too often
store            what survives a restart: `__share_group_state`
"""
