"""How components talk: who begins, whom they know, whether they must be there at the same time."""
