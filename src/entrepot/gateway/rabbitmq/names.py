"""Names that are reserved in RabbitMQ."""

RESERVED_PREFIX = "amq."
DELAY_QUEUE = "amq.delayed"  # Holds delayed messages. Persisted.
SUBJECT_EXCHANGE = "amq.topic"  # Its keys are subjects, for all protocols.
