"""Names that are reserved in RabbitMQ."""

RESERVED_PREFIX = "amq."
DELAY_QUEUE = "amq.delayed"  # Holds delayed messages. Persisted.
MANAGER = "entrepot-manager"  # A property of servers that are queue managers: the name.
LINK_EXCHANGE = "amq.link"  # Where messages of other queue managers arrive.
SUBJECT_EXCHANGE = "amq.topic"  # Its keys are subjects, for all protocols.
