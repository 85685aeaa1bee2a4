"""Messages of one format, read in another: formats, the rules between them, and who applies them.

A *format* is a name, a kind (JSON, XML, CSV, Avro, Protobuf, XDR) and a schema where the kind has
one. A *rule* says that what comes to a topic or a queue in one format goes to another in another
format. Both are records of one topic (`repository`), so they are added while everything runs, are
as durable and as replicated as any record, and nobody in the broker knows of them. Between any two
formats there is a *document*: what JSON can say (`kinds`). Whoever applies rules (`running`) is a
client, in a process of its own: what a hostile message costs, it does not cost the broker.
"""
