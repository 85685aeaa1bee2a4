#!/usr/bin/env bash
# Eclipse Paho's interoperability tests of MQTT brokers, unchanged, in versions 3.1.1 and 5, against
# entrepot. Needs git to fetch them, or PAHO_TESTING=directory with them.
#
# MQTT=host:port is a broker that is already there, ours or any other.
. "$(dirname "$0")/../harness.sh"

PYTHON=${PYTHON:-$ROOT/.venv/bin/python}
COMMIT=9d7bb80bb8b9d9cfc0b52f8cb4c1916401281103

fetch_tests() {
  PAHO_TESTING=$WORK/paho
  git init -q "$PAHO_TESTING" &&
    git -C "$PAHO_TESTING" fetch -q --depth 1 https://github.com/eclipse-paho/paho.mqtt.testing $COMMIT &&
    git -C "$PAHO_TESTING" checkout -q FETCH_HEAD
}
shown() {
  grep -qxF "PASS $2" "$WORK/$1" && return
  grep -F "FAIL $2:" "$WORK/$1" || tail -5 "$WORK/$1.log"
  return 1
}

[ -n "${PAHO_TESTING:-}" ] || fetch_tests 2>/dev/null || { echo "SKIP  paho-testing: no source"; exit 0; }
for module in client_test client_test5; do # Each with a broker of its own: they look at everything.
  if [ -z "${MQTT:-}" ]; then
    start_server --mqtt-port 0 --set mqtt.max_keep_alive_seconds=60
    address=$(sed -n 's/^ *mqtt *//p' "$WORK/stdout")
  else
    address=$MQTT
  fi
  timeout 300 "$PYTHON" "$HERE/suite.py" "$PAHO_TESTING/interoperability" $module "$address" \
    >"$WORK/$module" 2>"$WORK/$module.log"
  [ -n "${MQTT:-}" ] || stop_server
done
for module in client_test client_test5; do
  while read -r name; do
    check "$module: $name" shown $module "$name"
  done < <(sed -n 's/^ *def \(test[A-Za-z0-9_]*\)(.*/\1/p' "$PAHO_TESTING/interoperability/$module.py")
done
report
