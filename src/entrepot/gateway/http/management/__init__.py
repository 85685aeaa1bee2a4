"""Management over HTTP: RabbitMQ's API, as far as it makes sense here, and some of our own.

Paths and names of fields are RabbitMQ's, so that its tools and its clients' libraries work:
`application` finds the function for a path and turns what it returns or raises into answers;
each module beside it has the functions for one kind of thing. What RabbitMQ counts over time
(rates, `message_stats`) is left out.

Nothing here decides: the broker's verbs do, and who may call them is asked as over AMQP. What
concerns the whole broker (users, virtual hosts, other people's connections) is for those who
may do everything.
"""
