# Sourced by the examples: clients of Mosquitto against a broker on HOST and PORT.
#
# `listen NAME OPTIONS…` subscribes in the background and returns when the broker has answered.
# The last message that it waits for has the text "end"; `heard NAME` then shows what came.

set -eu
HOST=${HOST:-localhost}
PORT=${PORT:-1883}
WORK=$(mktemp -d)
LISTENERS=

leave() {
  for listener in $LISTENERS; do kill "$listener" 2>/dev/null || true; done
  rm -rf "$WORK"
}
trap leave EXIT

command -v mosquitto_sub >/dev/null || { echo "mosquitto-clients are not installed" >&2; exit 69; }

publish() {
  mosquitto_pub -h "$HOST" -p "$PORT" -V mqttv5 "$@"
}

listen() {
  local name=$1
  shift
  stdbuf -oL mosquitto_sub -h "$HOST" -p "$PORT" -V mqttv5 -d -F 'got: %t: %p (QoS %q, retain %r)' "$@" \
    >"$WORK/$name" 2>&1 &
  LISTENERS+=" $!"
  echo $! >"$WORK/$name.pid"
  until_there "$name" 'Subscribed (mid'
}

# until_there NAME WORDS: or fail, with what it said instead.
until_there() {
  for _ in $(seq 200); do
    grep -q "$2" "$WORK/$1" && return
    sleep 0.05
  done
  cat "$WORK/$1" >&2
  exit 1
}

# heard NAME: everything before the message "end", which was published last.
heard() {
  until_there "$1" ': end (QoS'
  stop "$1"
  echo "$1 heard:"
  { grep '^got: ' "$WORK/$1" || true; } | { grep -v ': end (QoS' || true; } | sed 's/^got: /  /'
}

stop() {
  kill "$(cat "$WORK/$1.pid")" 2>/dev/null || true
  wait "$(cat "$WORK/$1.pid")" 2>/dev/null || true
}
