#!/usr/bin/env bash
# Prometheus and promtool, unchanged, with the configuration, alerts and dashboard of config/:
# a broker that Kafka's and RabbitMQ's clients use is scraped every second.
. "$(dirname "$0")/../harness.sh"

for tool in prometheus promtool curl; do
  command -v $tool >/dev/null || { echo "SKIP  prometheus: no $tool on the path"; exit 0; }
done
PYTHON=${PYTHON:-$ROOT/.venv/bin/python}
PROMETHEUS=
LOAD=

finish_all() {
  [ -n "$LOAD" ] && kill "$LOAD" 2>/dev/null
  [ -n "$PROMETHEUS" ] && kill "$PROMETHEUS" 2>/dev/null && wait "$PROMETHEUS" 2>/dev/null
  finish
}
trap finish_all EXIT

endpoint() { # PROTOCOL: host:port
  "$PYTHON" -c 'import json, sys
end = json.load(open(sys.argv[1]))[sys.argv[2]]
print(end["host"], end["port"], sep=":")' "$WORK/data/endpoints.json" "$1"
}
free_port() {
  "$PYTHON" -c 'import socket
with socket.create_server(("127.0.0.1", 0)) as found: print(found.getsockname()[1])'
}

start_prometheus() {
  WEB=127.0.0.1:$(free_port)
  sed -e "s/127.0.0.1:15672/$HTTP/" -e 's/: 15s/: 1s/' "$ROOT/config/prometheus/prometheus.yml" \
    >"$WORK/prometheus.yml"
  cp "$ROOT/config/prometheus/alerts.yml" "$WORK"
  prometheus --config.file="$WORK/prometheus.yml" --storage.tsdb.path="$WORK/tsdb" \
    --web.listen-address="$WEB" --log.level=warn >"$WORK/prometheus.log" 2>&1 &
  PROMETHEUS=$!
  for _ in $(seq 300); do
    curl -sf "http://$WEB/-/ready" >/dev/null && return
    sleep 0.1
  done
  cat "$WORK/prometheus.log" >&2
  exit 1
}

ask() { "$PYTHON" "$HERE/ask.py" "http://$WEB" "$@"; }

# until SECONDS COMMAND...: again and again until it succeeds.
until_true() {
  local deadline=$(($(date +%s) + $1))
  shift
  until "$@"; do
    [ "$(date +%s)" -lt "$deadline" ] || return 1
    sleep 0.5
  done
}

well_named() {
  curl -sf -u guest:guest "http://$HTTP/metrics" >"$WORK/metrics" &&
    promtool check metrics <"$WORK/metrics" >"$WORK/lint" 2>&1 && expect "" cat "$WORK/lint"
}
valid_rules() {
  promtool check rules "$ROOT/config/prometheus/alerts.yml" &&
    promtool check config "$ROOT/config/prometheus/prometheus.yml"
}
rules_fire() {
  cp "$ROOT/config/prometheus/alerts.yml" "$HERE/alerts_test.yml" "$WORK" &&
    promtool test rules "$WORK/alerts_test.yml"
}
is_scraped() {
  local port
  until_true 60 ask some 'up{job="entrepot"} == 1' &&
    for port in kafka amqp mqtt; do
      until_true 60 ask some "rate(entrepot_messages_published_total{protocol=\"$port\"}[10s]) > 0" ||
        return
    done
}
has_latencies() {
  local what
  for what in produce fetch confirm commit; do
    until_true 60 ask some "rate(entrepot_${what}_latency_seconds_count[10s]) > 0" || return
  done
}
is_gone() {
  kill "$SERVER"
  wait "$SERVER" 2>/dev/null
  until_true 60 ask some 'up{job="entrepot"} == 0'
}

start_server --amqp-port 0 --mqtt-port 0 --http-port 0
HTTP=$(endpoint http)
"$PYTHON" "$HERE/load.py" "$(endpoint kafka)" "$(endpoint amqp)" "$(endpoint mqtt)" 120 \
  >"$WORK/load.log" 2>&1 &
LOAD=$!
start_prometheus
check "promtool finds nothing wrong with the names" well_named
check "promtool finds nothing wrong with the rules" valid_rules
check "the alerts fire when they should" rules_fire
check "a broker under load is scraped" is_scraped
check "what clients wait for is measured" has_latencies
check "every panel of the dashboard shows something" \
  until_true 60 ask panels "$ROOT/config/grafana/entrepot.json"
check "every rule is evaluated" until_true 60 ask rules
check "nothing is wrong with a broker under load" ask quiet
check "a broker that is gone is noticed" is_gone
ask worst
report
