"""The Python client: queues, publish/subscribe, requests and topics, over AMQP and Kafka.

It speaks what the broker speaks anyway: AMQP 0-9-1 for queues and subjects, Kafka for topics.
So it works beside all other clients, on the same names, and needs no port of its own.

    message    what is put and got: a body and its properties
    session    one connection of AMQP with several channels
    publishing what was sent and is not confirmed; sent again after a connection broke
    keeper     the connection that is made anew by itself, and everything that lives on it
    consuming  who is told of messages as they come
    queues, subjects, requests, topics, spaces, types, transactions
               the verbs, each a part of `AsyncClient`
    replica    a state that follows from a topic, the same for all clients
    client     `AsyncClient`: all of them together
    blocking   `Client`: the same for programs that do not wait in a loop
"""
