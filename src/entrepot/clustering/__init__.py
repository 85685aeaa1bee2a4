"""This node as one of several: its roles, what it copies from other nodes, what all of them share.

    node      puts the others together; the broker's `Cluster`
    catalogue topics, users, rules and settings, which all nodes have alike
    roles     what this node is for each partition, and the changes of in-sync sets
    queues    whether this node is the home of all queues, and what that takes
    fetcher   copies partitions from one other node

What is decided, and by whom, is in `entrepot.cluster`; these modules do it.
"""
