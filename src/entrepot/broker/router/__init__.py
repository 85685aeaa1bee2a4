"""Routing: to which queues the exchanges and bindings of one virtual host lead a message.

The `router` holds the exchanges and bindings and finds routes. It changes only by `apply` of an
`event`, so that the recorded events, applied again, give the same router. A function of
`decision` checks what a client asks for against a router, and raises an error or returns the
events to record and apply.

Each type of exchange has an index of its bindings (`matching`, `topic`, `headers`, `ring`), so
that the cost of routing depends on the bindings that match and not on how many there are.
Nothing here waits, and nothing knows a protocol.
"""
