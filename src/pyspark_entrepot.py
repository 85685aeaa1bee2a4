"""Where Spark finds the data source `entrepot`: it looks for modules of names like this."""

from entrepot.spark.source import EntrepotSource as DefaultSource

__all__ = ["DefaultSource"]
