"""The labs of gossip by name, with the sizes they have by default."""

from entrepot.lab import averaging, neighbours, policies, spreading, timed
from entrepot.lab.table import Lab

LABS = {
    "residue": Lab(
        "who never hears a rumor, for seven values of p_stop",
        lambda sizes: spreading.residues(sizes.nodes_or(10_000), sizes.runs_or(4), sizes.seed),
    ),
    "rounds": Lab(
        "push-pull among 100 to 100,000 nodes: rounds and messages",
        lambda sizes: spreading.rounds_over_nodes(
            sizes.up_to((100, 1_000, 10_000, 100_000)), sizes.seed
        ),
    ),
    "modes": Lab(
        "push, pull and push-pull beside each other",
        lambda sizes: spreading.modes(sizes.nodes_or(1_000), sizes.seed),
    ),
    "variants": Lab(
        "rumors by coin or counter, with feedback or blind",
        lambda sizes: spreading.variants(sizes.nodes_or(1_000), sizes.runs_or(10), sizes.seed),
    ),
    "complete": Lab(
        "a rumor, and anti-entropy for those it missed",
        lambda sizes: spreading.complete(sizes.nodes_or(1_000), sizes.seed),
    ),
    "failures": Lab(
        "push-pull while nodes are down and messages get lost",
        lambda sizes: spreading.failures(sizes.nodes_or(1_000), sizes.seed),
    ),
    "nine": Lab(
        "probabilistic gossip on nine nodes: 11 messages, 7 nodes",
        lambda sizes: neighbours.nine(sizes.runs_or(10_000), sizes.seed),
    ),
    "counter": Lab(
        "the blind counter against flooding",
        lambda sizes: neighbours.counter(sizes.nodes_or(1_000), sizes.runs_or(10), sizes.seed),
    ),
    "bimodal": Lab(
        "bimodal multicast: almost all or almost none, at once or later",
        lambda sizes: timed.bimodal(sizes.nodes_or(50), sizes.runs_or(300), sizes.seed),
    ),
    "aggregate": Lab(
        "average, sum, count, minimum and maximum",
        lambda sizes: averaging.aggregates(sizes.nodes_or(1_000), 20, sizes.seed),
    ),
    "sampling": Lab(
        "peer sampling, and what becomes of those who are gone",
        lambda sizes: averaging.sampling(sizes.nodes_or(500), 20, sizes.seed),
    ),
    "swim": Lab(
        "how fast a killed member is suspected, dead, and known to be dead",
        lambda sizes: timed.detection(sizes.up_to((8, 32, 128)), sizes.runs_or(10), sizes.seed),
    ),
    "mistakes": Lab(
        "who is suspected although alive, when messages get lost",
        lambda sizes: timed.mistakes(sizes.nodes_or(32), sizes.seed),
    ),
    "policies": Lab(
        "the gossip of Cassandra, Dynamo, S3, BitTorrent, CockroachDB, Fastly",
        lambda sizes: policies.named(sizes.nodes_or(200), sizes.seed),
    ),
}
