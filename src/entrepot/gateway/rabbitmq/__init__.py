"""What RabbitMQ's protocols have in common: the names and words of its arguments."""
