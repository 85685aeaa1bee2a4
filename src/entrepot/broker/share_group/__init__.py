"""Kafka's share groups (KIP-932): consumers that share the records of topics, one by one.

settings         what can be set on a group
group            its members: who is there, and which partitions they may read
coordinator      all groups of this node
share_partition  what became of the records of one partition: a ledger, with locks in time
acquisition      which records a consumer gets, and the batches of the log they are in
dead_letter      copies of what no consumer could use
store            what must survive: `__share_group_state`
"""
