"""Queue managers: brokers that are not one cluster, and relay messages for each other.

    table     which manager is reached by way of which neighbour, and which queue is where
    link      a durable channel to a neighbour: sends what waits in its transmission queue
    manager   the links of this broker, and what neighbours announce to it

A message for `queue@manager` is published like any other. Where that manager is not this one, the
message waits in the transmission queue of the next neighbour on the way, `link.<neighbour>`, and
is settled there when the neighbour has confirmed it. What a neighbour cannot deliver is a dead
letter in the queue `link.undeliverable`.

Between two of these brokers a message comes once: it is sent with an id, to an exchange that passes
each id on once to each queue. To another broker of AMQP it comes at least once.
"""
