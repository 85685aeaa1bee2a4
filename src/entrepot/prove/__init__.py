"""Delivery semantics, proven: the same workload under each of them, while everything is killed.

A trial is a broker, a producer and a consumer, each a process of its own, with the clients that
people use. Producer and consumer write down what they do (`notes`), and stop where a crash hurts
most: the producer after the broker's answer and before it has written that down, the consumer in
the middle of its work. There they are killed with kill -9, and others take their place; the broker
is killed with messages in it and both sides busy. What was done in the end is compared with what
the lectures predict (`semantics`).

`workers` has the loops of producer and consumer; `kafka`, `amqp`, `mqtt`, `stomp` and `sqs` have a
client's calls for each, and nothing else.
"""
