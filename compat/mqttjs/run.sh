#!/usr/bin/env bash
# mqtt.js, the client of browsers and of Node, over WebSocket and TCP, in versions 3.1.1 and 5.
#
# MQTT=host:port and WS=host:port/path are a broker that is already there, ours or any other:
# with a Mosquitto (WS without a path) all pass but those that FINDINGS.md names.
. "$(dirname "$0")/../harness.sh"

command -v node >/dev/null && command -v npm >/dev/null ||
  { echo "SKIP  mqttjs: no node or no npm on the path"; exit 0; }
cp "$HERE"/*.js "$HERE/package.json" "$WORK/"
(cd "$WORK" && npm install --silent --no-audit --no-fund) >"$WORK/npm" 2>&1 ||
  { echo "SKIP  mqttjs: it could not be fetched"; exit 0; }

if [ -z "${MQTT:-}" ]; then
  start_server --mqtt-port 0 --http-port 0
  MQTT=$(sed -n 's/^ *mqtt *//p' "$WORK/stdout")
  WS=$(sed -n 's/^ *http *//p' "$WORK/stdout")/mqtt
fi
export MQTT_URL=mqtt://$MQTT WS_URL=ws://$WS

shown() {
  grep -qxF "PASS $2" "$WORK/$1.features" && return
  grep -F "FAIL $2" "$WORK/$1.features" || cat "$WORK/$1.features"
  return 1
}
for transport in ws tcp; do
  for version in 3.1 3.1.1 5; do
    (cd "$WORK" && node features.js $transport $version) >"$WORK/$transport-$version.features" 2>&1
    while read -r name; do
      check "$transport, $version: $name" shown "$transport-$version" "$name"
    done < <(cd "$WORK" && node features.js $transport $version --list)
  done
done
report
