#!/usr/bin/env bash
# Entrepot beside Mosquitto: what a client hears of one it must hear of the other.
#
# Both are started on the loopback interface, with directories of their own, and stopped.
# MQTT=host:port is another broker to look at instead of ours. PYTHON needs nothing but itself.
. "$(dirname "$0")/../harness.sh"

MOSQUITTO=${MOSQUITTO:-$(PATH=$PATH:/usr/sbin command -v mosquitto)}
PYTHON=${PYTHON:-$ROOT/.venv/bin/python}
PROCESSES=

finish() {
  local process
  for process in $PROCESSES; do
    kill "$process" 2>/dev/null
    wait "$process" 2>/dev/null
  done
  rm -rf "$WORK"
}

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

# until_says FILE WORDS PROCESS: or says what it said instead, and gives up.
until_says() {
  for _ in $(seq 600); do
    grep -q "$2" "$WORK/$1" && return
    kill -0 "$3" 2>/dev/null || break
    sleep 0.1
  done
  echo "the broker did not start:" >&2
  tail -n 20 "$WORK/$1" "$WORK/$1.errors" >&2
  exit 1
}

# start_entrepot VERSION
start_entrepot() {
  OURS=127.0.0.1:$(free_port)
  : >"$WORK/entrepot-$1"
  # shellcheck disable=SC2086 # The command may have arguments.
  ${ENTREPOT:-$ROOT/.venv/bin/entrepot} serve --data-dir "$WORK/ours-$1" --kafka-port 0 \
    --amqp-port off --http-port off --mqtt-port "${OURS##*:}" --stomp-port off --sqs-port off \
    >"$WORK/entrepot-$1" 2>"$WORK/entrepot-$1.errors" &
  PROCESSES+=" $!"
  until_says "entrepot-$1" '^ready$' $!
}

# start_mosquitto VERSION
start_mosquitto() {
  PEER=127.0.0.1:$(free_port)
  printf 'listener %s 127.0.0.1\nallow_anonymous true\npersistence false\n' \
    "${PEER##*:}" >"$WORK/mosquitto-$1.conf"
  : >"$WORK/mosquitto-$1"
  "$MOSQUITTO" -c "$WORK/mosquitto-$1.conf" -v >"$WORK/mosquitto-$1" 2>&1 &
  PROCESSES+=" $!"
  until_says "mosquitto-$1" 'running$' $!
}

# All cases run once; what was said of one is looked up.
behaves_alike() {
  grep -qxF "PASS  $1" "$WORK/behaviour" && return
  grep -F "DIFF  $1: " "$WORK/behaviour" || tail -5 "$WORK/behaviour"
  return 1
}

[ -x "$MOSQUITTO" ] || { echo "SKIP  mosquitto: not installed"; exit 0; }
# Most of the time they wait, so each version of MQTT has brokers of its own, all at once.
RUNS=
for version in 3.1 3.1.1 5; do
  start_entrepot "$version"
  start_mosquitto "$version"
  "$PYTHON" "$HERE/behaviour.py" "$PEER" "${MQTT:-$OURS}" --version "$version" \
    >"$WORK/behaviour-$version" 2>&1 &
  RUNS+=" $!"
done
wait $RUNS
cat "$WORK"/behaviour-* >"$WORK/behaviour"
while read -r name; do
  check "$name" behaves_alike "$name"
done < <("$PYTHON" "$HERE/behaviour.py" --list)
for version in 3.1 3.1.1 5; do
  echo "MQTT $version: $(tail -1 "$WORK/behaviour-$version")"
done
report
