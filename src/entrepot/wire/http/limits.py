"""Bounds of HTTP. Those of messages and queues are the broker's, in `core.limits`."""

from entrepot.core.limits import (
    KIB,
    LOGIN_FRAME_BYTES_MAX,
    MESSAGE_BYTES,
    MIB,
    UNFINISHED_BYTES_MAX,
)

HEAD_BYTES_MAX = 32 * KIB  # The first line and the headers of a request.
HEADERS_MAX = 100
BODY_BYTES_MAX = 32 * MIB  # One request's body: a message, as base64 in JSON.
JSON_VALUES_MAX = 1_000_000  # In one document; each takes about a hundred bytes in memory.
PIPELINED_MAX = 16  # Requests of one connection that wait; with more, it is not read from.
QUERY_FIELDS_MAX = 100
PAGE_ROWS_MAX = 500  # One page of a list, as in RabbitMQ.
MESSAGES_MAX = 10_000  # Messages got from a queue, or looked at, by one request,
MESSAGES_BYTES_MAX = 32 * MIB  # and their bytes; with more, fewer messages are returned.
PROPERTIES_BYTES_MAX = 48 * KIB  # Properties of a message that is published.
CHECK_MS = 30_000  # How often a connection is checked for the two limits below.
REQUEST_MS_MAX = 60_000  # From a request's first byte to its last.
IDLE_MS_MAX = 300_000  # Between requests.

assert MESSAGE_BYTES * 4 // 3 <= BODY_BYTES_MAX <= UNFINISHED_BYTES_MAX
assert CHECK_MS <= REQUEST_MS_MAX <= IDLE_MS_MAX

# The console: logins of browsers, and pages that watch.
LOGINS_MAX = 1_000  # Of all users together; with more, the one that was not used longest ends.
LOGIN_IDLE_MS_MAX = 8 * 3_600_000  # Since its last request,
LOGIN_AGE_MS_MAX = 24 * 3_600_000  # and since its begin.
WATCHERS_MAX = 100  # Pages that are told what happens.
WATCHER_BACKLOG_BYTES_MAX = 256 * KIB  # What a page has not read yet; with more, it is dropped.
WATCH_MS = 1_000  # Between two samples.
WATCH_SAMPLES_MAX = 300  # That a new page gets, so that its charts do not begin empty.
WATCH_TEXTS_MAX = 200  # Lines of the log that a new page gets.
WATCH_TEXT_CHARACTERS_MAX = 500  # Of one line.
SEARCH_RESULTS_MAX = 50
READER_RECORDS_MAX = 200  # On one page of the reader.
READER_SCANNED_MAX = 20_000  # Records looked at for one page; the next goes on from there,
READER_BYTES_MAX = 32 * MIB  # or bytes of batches.
READER_VALUE_BYTES_MAX = 64 * KIB  # Of a key or a value in a list; one alone is shown whole up to
READER_ONE_BYTES_MAX = 1 * MIB  # this.

# WebSocket. A frame is held until it is whole; packets may be longer, in several frames.
WEBSOCKET_FRAME_BYTES_MAX = 17 * MIB  # Once the peer was answered; before, LOGIN_FRAME_BYTES_MAX.
WEBSOCKET_FRAMES_MAX = 500  # Of one connection in a turn,
WEBSOCKET_BYTES_MAX = 1 * MIB  # and bytes of payload.

assert LOGIN_FRAME_BYTES_MAX < MESSAGE_BYTES < WEBSOCKET_FRAME_BYTES_MAX <= UNFINISHED_BYTES_MAX
