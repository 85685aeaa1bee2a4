"""Options of Spark's Kafka source and sink that mean nothing here, or that are refused.

Whoever swaps Spark's connector for this one has options that were set for it. Those that only
tune the other client, or name what is not used here, are taken with a warning that says why they
do nothing. Those that would change which rows are read or written are refused.
"""

_NO_GROUP = "no consumer group is used; the offsets are in Spark's checkpoint"
_OWN_RETRIES = "requests are repeated for about 25 seconds, with pauses that grow"
_OWN_FETCHES = "tasks fetch what their range needs, in pieces of up to 8 MiB"
_OWN_CONNECTION = "connections are the client's own matter"
_OWN_BATCHES = "the sink gathers a task's rows into batches by itself"
_OWN_TRANSACTIONS = "the sink writes in transactions of its own, acknowledged by all replicas"
_JVM = "it is for Java's client, which is not used"

_CONNECTION = {
    "kafka.client.dns.lookup": _OWN_CONNECTION,
    "kafka.client.rack": "the leader of a partition is asked, wherever it is",
    "kafka.connections.max.idle.ms": _OWN_CONNECTION,
    "kafka.default.api.timeout.ms": _OWN_RETRIES,
    "kafka.enable.metrics.push": _JVM,
    "kafka.metadata.max.age.ms": "the driver asks for topics and partitions before each batch",
    "kafka.metadata.recovery.strategy": _OWN_CONNECTION,
    "kafka.metric.reporters": _JVM,
    "kafka.metrics.num.samples": _JVM,
    "kafka.metrics.recording.level": _JVM,
    "kafka.metrics.sample.window.ms": _JVM,
    "kafka.receive.buffer.bytes": _OWN_CONNECTION,
    "kafka.reconnect.backoff.max.ms": _OWN_RETRIES,
    "kafka.reconnect.backoff.ms": _OWN_RETRIES,
    "kafka.request.timeout.ms": _OWN_RETRIES,
    "kafka.retry.backoff.max.ms": _OWN_RETRIES,
    "kafka.retry.backoff.ms": _OWN_RETRIES,
    "kafka.security.providers": _JVM,
    "kafka.send.buffer.bytes": _OWN_CONNECTION,
    "kafka.socket.connection.setup.timeout.max.ms": _OWN_CONNECTION,
    "kafka.socket.connection.setup.timeout.ms": _OWN_CONNECTION,
}
# By name, why it does nothing.
IGNORED_BY_SOURCE = _CONNECTION | {
    "fetchOffset.numRetries": _OWN_RETRIES,
    "fetchOffset.retryIntervalMs": _OWN_RETRIES,
    "groupIdPrefix": _NO_GROUP,
    "kafka.allow.auto.create.topics": "reading makes no topic",
    "kafka.check.crcs": "checksums are always checked",
    "kafka.exclude.internal.topics": "internal topics are read only when they are named",
    "kafka.fetch.max.bytes": _OWN_FETCHES,
    "kafka.fetch.max.wait.ms": _OWN_FETCHES,
    "kafka.fetch.min.bytes": _OWN_FETCHES,
    "kafka.group.id": _NO_GROUP,
    "kafka.group.instance.id": _NO_GROUP,
    "kafka.group.protocol": _NO_GROUP,
    "kafka.heartbeat.interval.ms": _NO_GROUP,
    "kafka.max.partition.fetch.bytes": _OWN_FETCHES,
    "kafka.max.poll.interval.ms": _NO_GROUP,
    "kafka.max.poll.records": _OWN_FETCHES,
    "kafka.partition.assignment.strategy": _NO_GROUP,
    "kafka.session.timeout.ms": _NO_GROUP,
    "kafkaConsumer.pollTimeoutMs": _OWN_RETRIES,
}
IGNORED_BY_SINK = _CONNECTION | {
    "kafka.acks": _OWN_TRANSACTIONS,
    "kafka.batch.size": _OWN_BATCHES,
    "kafka.buffer.memory": _OWN_BATCHES,
    "kafka.compression.gzip.level": "each codec has its default level",
    "kafka.compression.lz4.level": "each codec has its default level",
    "kafka.compression.zstd.level": "each codec has its default level",
    "kafka.delivery.timeout.ms": _OWN_RETRIES,
    "kafka.enable.idempotence": _OWN_TRANSACTIONS,
    "kafka.linger.ms": _OWN_BATCHES,
    "kafka.max.block.ms": _OWN_RETRIES,
    "kafka.max.in.flight.requests.per.connection": _OWN_TRANSACTIONS,
    "kafka.max.request.size": _OWN_BATCHES,
    "kafka.partitioner.adaptive.partitioning.enable": _OWN_BATCHES,
    "kafka.partitioner.availability.timeout.ms": _OWN_BATCHES,
    "kafka.retries": _OWN_RETRIES,
    "kafka.transaction.timeout.ms": _OWN_TRANSACTIONS,
}

_BYTES = "key and value are binary; cast them, or decode them in the query"
_CLASSES = "there is no Java here to run a class of yours"
_PEM = "certificates and keys are PEM files without a password"
# By name, what to do instead.
REFUSED = {
    "kafka.auto.offset.reset": "startingOffsets says where to begin",
    "kafka.enable.auto.commit": "offsets are in Spark's checkpoint",
    "kafka.interceptor.classes": _CLASSES,
    "kafka.key.deserializer": _BYTES,
    "kafka.key.serializer": _BYTES,
    "kafka.partitioner.class": "a column partition says where a row goes",
    "kafka.partitioner.ignore.keys": "leave the column key out, or say the partition in a column",
    "kafka.sasl.client.callback.handler.class": _CLASSES,
    "kafka.sasl.kerberos.service.name": "PLAIN and SCRAM are the ways to log in",
    "kafka.sasl.login.callback.handler.class": _CLASSES,
    "kafka.sasl.login.class": _CLASSES,
    "kafka.sasl.oauthbearer.token.endpoint.url": "PLAIN and SCRAM are the ways to log in",
    "kafka.ssl.cipher.suites": "TLS uses what Python's ssl module prefers",
    "kafka.ssl.enabled.protocols": "TLS uses what Python's ssl module prefers",
    "kafka.ssl.key.password": _PEM,
    "kafka.ssl.keystore.certificate.chain": _PEM,
    "kafka.ssl.keystore.key": _PEM,
    "kafka.ssl.keystore.password": _PEM,
    "kafka.ssl.protocol": "TLS uses what Python's ssl module prefers",
    "kafka.ssl.truststore.certificates": _PEM,
    "kafka.ssl.truststore.password": _PEM,
    "kafka.transactional.id": "the sink has transactional ids of its own, by query and task",
    "kafka.value.deserializer": _BYTES,
    "kafka.value.serializer": _BYTES,
}
