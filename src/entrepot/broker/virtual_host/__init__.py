"""Virtual hosts: each has queues and exchanges with names of its own.

`virtual_host` declares, deletes, binds and publishes; `virtual_hosts` creates, finds and
deletes virtual hosts. Durable state is stored as records of the catalog (`records`; those of
queues are in `broker.catalog`).

    inventory       the queues and streams: declared, found, deleted
    routing         exchanges and bindings: changed and recorded
    publisher       routes the messages of a run and publishes them to queues and topics
    deduplication   the message ids that each queue got through a deduplicating exchange
    topic_feed      appends to a topic what is routed to it
    delay_store     messages that wait at a delayed exchange
    queue_maker     makes the lanes of queues, in memory or in the log

In the first virtual host, `/`, a name is one thing for all protocols: a topic is a stream that
can be bound and published to, and a queue that survives is a topic that can be read.
"""
