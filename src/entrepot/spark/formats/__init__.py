"""Values as Avro and Protobuf, decoded without a jar: columns of Spark, made by Python and Arrow.

    framing     Confluent's wire format: a zero byte, the schema's id in four bytes, the value
    registry    schemas by id and by subject, from a schema registry
    avro        from_avro
    protobuf    from_protobuf

Spark's own functions of these names need the packages spark-avro and spark-protobuf.
"""

from entrepot.spark.formats.avro import from_avro
from entrepot.spark.formats.framing import BadValue
from entrepot.spark.formats.protobuf import from_protobuf

__all__ = ["BadValue", "from_avro", "from_protobuf"]
