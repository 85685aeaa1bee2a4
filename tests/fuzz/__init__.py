"""A fuzzer: traffic that is almost right, over real sockets, at a real broker.

    python -m tests.fuzz --protocol amqp --frames 200000 --seed 1
    python -m tests.fuzz --replay FILE

What is sent is a function of the protocol, the seed and the number of the session: what one
connection says, from its first byte to its end. Most of a session is well formed, since only
that gets far; it uses few names, so that what one session made is there for another, and
values at the edges of what is allowed. Something in it is then damaged, mostly near its end.

Meanwhile a client that does nothing wrong asks for little all the time, and its waits are
noted beside those for a process that only echoes. A finding is an exit of the broker, a
traceback in its log, or a wait of that client which the machine did not cause. It is written
to a file, with the sessions before it, that can be replayed.
"""
