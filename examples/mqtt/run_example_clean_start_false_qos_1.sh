#!/usr/bin/env bash
# A client with a session and QoS 1 misses nothing: what is published while it is away waits.
. "$(dirname "$0")/lab.sh"

listen before -i lab-session-1 -c -x 600 -q 1 -t lab/session1
stop before
for number in 1 2 3; do
  publish -q 1 -t lab/session1 -m "while it was away, $number"
done
listen client -i lab-session-1 -c -x 600 -q 1 -t lab/session1
publish -q 1 -t lab/session1 -m 'while it is there'
publish -q 1 -t lab/session1 -m end
heard client
mosquitto_sub -h "$HOST" -p "$PORT" -V mqttv5 -i lab-session-1 -t lab/session1 -E # Ends the session.
