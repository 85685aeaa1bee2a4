"""Routing: given the exchanges and bindings of one virtual host, where a publish goes.

The `router` holds the state and answers; it changes by `apply` of an `event` and by nothing
else, so that whoever records the events and folds them again has the same router. What may
change, and into which events a wish becomes, is decided in `decision`: a function there looks
at a router, raises what is wrong with the wish, or returns the events.

Each exchange finds its bindings by an index of its type's own (`matching`, `topic`, `headers`,
`ring`), so that what a message costs follows from what it matches and not from how much there
is. The rules are those of RabbitMQ 4. Nothing here waits, and nothing knows a wire.
"""
