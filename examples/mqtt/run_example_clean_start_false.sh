#!/usr/bin/env bash
# A client with a session gets what it subscribed to when it comes back; but of what is published
# with QoS 0, only what comes while it is there.
. "$(dirname "$0")/lab.sh"

publish -q 0 -t lab/session -m 'before there was a session'
listen before -i lab-session -c -x 600 -q 0 -t lab/session
stop before
publish -q 0 -t lab/session -m 'while it was away'
listen client -i lab-session -c -x 600 -q 0 -t lab/session
publish -q 0 -t lab/session -m 'while it is there'
publish -q 0 -t lab/session -m end
heard client
mosquitto_sub -h "$HOST" -p "$PORT" -V mqttv5 -i lab-session -t lab/session -E # Ends the session.
