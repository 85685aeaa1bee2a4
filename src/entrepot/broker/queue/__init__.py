"""Queues: each message is delivered to one of the consumers.

A `queue` is one `lane` of messages with a ledger, or one lane for each priority. It appends
together what is published in one turn of the loop, and delivers it when it is committed. All of
this is done in runs: a run of two hundred messages is appended, read, divided among the
consumers and settled in a few steps, and no step handles single messages unless it must.

A `Queue` is one state machine: publishers, consumers, timers and commits call it, and it appends,
delivers, settles and sends dead letters. It uses these parts, which do not know each other:

    message             runs, and a publication, which counts the answers that a run waits for
    settings            what a queue was declared with
    front               the next messages of a lane, without those that have expired
    lane                messages in one order: memory_lane, or log_lane in the log
    record_batches      runs as batches of the log
    shelf, message_cache, memory_use
                        runs in memory by offset, and how many bytes they take
    consumer            the consumers, whose turn it is, and who gets which messages
    selection           which messages a consumer wants, if not all, and how far it has looked
    length_limit        when a queue is too long
    dead_letter         makes dead letters of messages
    timed_leases        messages that are leased until a time, over HTTP
    receipts            single messages that are leased until a time, and those who wait for some
    ordered_groups      which messages may be delivered, if each belongs to a group
    identities          messages of which each is published once
    settlement_watch    publishers that wait until their messages are consumed
    timer               calls the queue at a time
    conservation        the account of what became of every message
    stream_reader       reads a topic for consumers of streams

Nothing here knows a protocol: consumers are objects of a gateway with a few methods, and a
message's properties are bytes, which its format can read.
"""
