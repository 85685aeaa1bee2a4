"""What AMQP and the management API share: RabbitMQ's names, arguments and error texts."""
