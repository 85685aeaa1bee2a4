"""Virtual hosts: names of queues and exchanges, apart from those of the others.

A `virtual_host` declares, deletes, binds and publishes; `virtual_hosts` are those there are.
What survives is records of the catalog (`records`, and the queues' in `broker.catalog`).

    publisher       where the messages of a run go, and that they get there
    topic_feed      topics, as queues that are never emptied: what is published is appended
    waiting_room    messages that wait at a delayed exchange
    queue_maker     queues out of lanes: of memory, or of the log

In the first virtual host, `/`, a name is one thing for all protocols: a topic is a stream that
can be bound and published to, and a queue that survives is a topic that can be read.
"""
