"""Queues: messages that wait, each for one of the consumers.

A `queue` is one `lane` of messages with a ledger, or one lane for each priority. It gathers
what is published in a turn of the loop, appends it at once, and hands it out when it is
committed. All of that goes in runs: a run of two hundred messages is appended, taken, dealt
to the consumers and settled in a few steps, and no step looks at a single message unless
it must.

Each rule of a queue has its place:

    arguments           what a queue was declared with, and whether that is in order
    intake, arrival     what is published, until it is committed
    front, expiry       what comes next in a lane, and what of it is still good
    consumer, deal      who takes messages, whose turn it is, and who gets which
    overflow            when a queue is too long
    outcome             what becomes of messages: consumed, dropped or dead
    dead_letter, burial what a message carries with it that died, and where that goes
    settlement_watch    publishers who wait until their messages are consumed

The rules are those of RabbitMQ 4. Nothing here knows a wire: consumers are told by methods,
and a message's properties are bytes that a reader is asked about.
"""
