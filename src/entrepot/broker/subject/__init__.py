"""Subjects: hierarchical names that are published to, and filters that match them.

    name        a name's two spellings, its levels, and what is allowed
    filter      filters of both spellings as levels and wildcards
    index       finds all filters that match a name
    listeners   who gets what is published on a name, remembered for names seen before
    subjects    the verbs: publish on a subject, listen to a filter
    retained    the newest message of each name that was published to be kept

A subject stores nothing, but for its retained message: it is for those who listen now, and lands
in the queues and topics that have its name or are bound to a filter.
"""
