"""The bench: entrepot beside Apache Kafka, on one machine, in one run, in one table.

`python -m bench` starts the brokers in a temporary directory, drives them with the same
clients and the same bytes, takes turns between them because machines are noisy, and prints
medians with their range and the ratios. bench/README.md says what each row means.
"""
