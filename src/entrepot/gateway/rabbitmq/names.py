"""Names that are reserved in RabbitMQ."""

RESERVED_PREFIX = "amq."
DELAY_QUEUE = "amq.delayed"  # Holds delayed messages. Persisted.
LINK_EXCHANGE = "amq.link"  # Where messages of other queue managers arrive.
SUBJECT_EXCHANGE = "amq.topic"  # Its keys are subjects, for all protocols.
