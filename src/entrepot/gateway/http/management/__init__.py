"""Management over HTTP: RabbitMQ's API, as far as it makes sense here, and some additions.

Paths and names of fields are RabbitMQ's, so that its tools and its clients' libraries work:
`application` finds the function for a path and turns what it returns or raises into answers;
each module beside it has the functions for one kind of thing. What RabbitMQ counts over time
(rates, `message_stats`) is left out.

The functions only call the broker, with the same permissions as over AMQP. What concerns the
whole broker (users, virtual hosts, other users' connections) is for administrators.
"""
