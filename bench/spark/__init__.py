"""The bench of the Spark source: beside Spark's own Kafka connector, in one run, in one table.

`python -m bench.spark` starts a broker and one Spark session on two cores, fills a topic,
and lets the contestants read it in turns: entrepot over the wire, entrepot out of the
segment files, and the stock connector, on the same topic of the same broker.
"""
