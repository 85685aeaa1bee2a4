"""Gossip: nodes that each tell a few others, again and again, until all of them know.

All parts are state machines: they are told the time and what has arrived, and return what is to
be sent. Real nodes (`node`) and the labs (`entrepot.lab`) run the same ones.

    framework       the active and the passive side, and what a machine is
    peers           who is chosen
    store           facts by owner and version; anti-entropy of all there is, or by digests
    rumor           news that is passed on until it meets too many who know it
    aggregate       average, sum, count, minimum and maximum of the values of all nodes
    sampling        some live nodes to gossip with, for those who do not know all
    bimodal         a multicast that may lose, then repair by digests
    swim            members: who is alive, suspected, dead
    agent           the machines of one node, on packets
    node            an agent on a socket
    named           the gossip of well-known systems, as choices of the above
"""
