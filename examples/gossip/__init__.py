"""What gossip and multicast between nodes are used for. Each node has a socket of its own."""
