"""The simulated world: time, chance, disk and network out of one seed.

Only tests import it, so it stands beside the package and is not installed with it. A world
is built inside `loop.run`, a crash is dropping what ran in it, and a failing seed replays
exactly.
"""
