"""Names that are reserved in RabbitMQ."""

RESERVED_PREFIX = "amq."
DELAY_QUEUE = "amq.delayed"  # Holds delayed messages. Persisted.
