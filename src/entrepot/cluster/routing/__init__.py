"""Events to those who subscribed, over many nodes.

Four layers, each of which knows only those below it:

    matching    filters: what an event must be, and which filter covers which
    routing     flooding, filtering (with advertisements), rendezvous, informed gossip: who an
                event, a subscription or an advertisement goes to next
    overlay     `cluster.overlay`: who is whose neighbour
    network     who takes a message to a node: a world of `entrepot.lab`
"""
