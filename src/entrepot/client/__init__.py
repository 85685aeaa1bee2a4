"""A small asynchronous Kafka client, over the net port and our own codecs.

It serves the command line, the simulator and Spark. It knows no time, no chance and
no sockets but those it is handed, and works with Apache Kafka as with us.
"""
