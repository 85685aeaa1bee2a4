#!/usr/bin/env bash
# HiveMQ's client (Java) against entrepot, and a bridge to HiveMQ's community edition and back.
# Needs a JDK and mvn, which fetches both.
#
# MQTT=host:port is a broker that is already there, for the client.
. "$(dirname "$0")/../harness.sh"

PYTHON=${PYTHON:-$ROOT/.venv/bin/python}
PEER_PROCESS=

finish_all() {
  [ -z "$PEER_PROCESS" ] || kill "$PEER_PROCESS" 2>/dev/null
  finish
}
trap finish_all EXIT

free_port() {
  python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'
}

fetched() { mvn -B -q -f "$HERE/$1" dependency:copy-dependencies -DoutputDirectory="$WORK/$1"; }

shown() {
  grep -qxF "PASS $1" "$WORK/features" && return
  grep -F "FAIL $1" "$WORK/features" || tail -5 "$WORK/features"
  return 1
}

# start_peer: HiveMQ's own broker, on $PEER.
start_peer() {
  PEER=127.0.0.1:$(free_port)
  : >"$WORK/peer"
  java -cp "$WORK/broker/*" "$HERE/broker/Broker.java" "${PEER##*:}" "$WORK/hivemq" \
    >"$WORK/peer" 2>&1 &
  PEER_PROCESS=$!
  for _ in $(seq 600); do
    grep -qx ready "$WORK/peer" && return
    kill -0 "$PEER_PROCESS" 2>/dev/null || break
    sleep 0.1
  done
  tail -5 "$WORK/peer"
  return 1
}

command -v javac >/dev/null && command -v mvn >/dev/null ||
  { echo "SKIP  hivemq: no JDK, or no mvn"; exit 0; }
fetched client && fetched broker || { echo "SKIP  hivemq: mvn could not fetch it"; exit 0; }

PEER=127.0.0.1:1
start_peer || { echo "SKIP  hivemq: its broker does not start"; exit 0; }
cat >"$WORK/bridge.toml" <<EOF
[[bridge]]
name = "hivemq"
address = "$PEER"

[[bridge.topics]]
filter = "#"
direction = "both"
qos = 2
local_prefix = "here/"
remote_prefix = "there/"
EOF
OWN=127.0.0.1:$(free_port)
start_server --config "$WORK/bridge.toml" --mqtt-port "${OWN##*:}"
java -cp "$WORK/client/*" "$HERE/client/Features.java" "$(cut -d: -f1 <<<"${MQTT:-$OWN}")" \
  "$(cut -d: -f2 <<<"${MQTT:-$OWN}")" >"$WORK/features" 2>/dev/null
while read -r name; do
  check "$name" shown "$name"
done < <(java -cp "$WORK/client/*" "$HERE/client/Features.java" --list 2>/dev/null)
bridged() { "$PYTHON" "$HERE/bridged.py" "$OWN" "$PEER"; }
check "a bridge to HiveMQ: both ways, each quality, no loop" bridged
report
