#!/usr/bin/env bash
# @stomp/stompjs, the STOMP client of browsers and of Node, over WebSocket in its three versions.
#
# WS=host:port/path is a broker that is already there, ours or any other.
. "$(dirname "$0")/../harness.sh"

command -v node >/dev/null && command -v npm >/dev/null ||
  { echo "SKIP  stompjs: no node or no npm on the path"; exit 0; }
cp "$HERE"/*.js "$HERE/package.json" "$WORK/"
(cd "$WORK" && npm install --silent --no-audit --no-fund) >"$WORK/npm" 2>&1 ||
  { echo "SKIP  stompjs: it could not be fetched"; exit 0; }

if [ -z "${WS:-}" ]; then
  start_server --stomp-port 0 --http-port 0
  WS=$(sed -n 's/^ *http *//p' "$WORK/stdout")/stomp
fi
export WS_URL=ws://$WS

shown() {
  grep -qxF "PASS $2" "$WORK/$1.features" && return
  grep -F "FAIL $2" "$WORK/$1.features" || cat "$WORK/$1.features"
  return 1
}
for version in 1.0 1.1 1.2; do
  (cd "$WORK" && node features.js $version) >"$WORK/$version.features" 2>&1
  while read -r name; do
    check "$version: $name" shown "$version" "$name"
  done < <(cd "$WORK" && node features.js $version --list)
done
report
