"""Sessions: what a client subscribed to, and what waits for it, also while it is away.

    ports           what a gateway implements, and the values that pass between both sides
    session         one session: its subscriptions, and the messages in flight to its client
    assigned        messages of shared queues that belong to it, to be delivered exactly once
    ways            by which subscriptions a session gets a message
    sender          what it knows of messages that its client publishes exactly once
    retained_feed   delivers retained messages to a session that subscribes
    registry        the sessions of a virtual host: opened, taken over, expired, deleted
    store           sessions that outlive their connection, as records of an internal topic
    records         the bytes of these records
    shared          subscriptions that several sessions share

A session knows no protocol: its client is a `Receiver`, and messages have qualities of service
(at most once, at least once, exactly once) and numbers by which the receiver answers them.
"""
