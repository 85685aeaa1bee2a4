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
CLUSTER=

finish_all() {
  [ -n "$CLUSTER" ] && kill -INT "$CLUSTER" 2>/dev/null && wait "$CLUSTER" 2>/dev/null
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

start_prometheus() { # ADDRESS...: of the nodes
  local targets
  WEB=127.0.0.1:$(free_port)
  targets=$(printf '"%s", ' "$@")
  sed -e "s/\"127.0.0.1:15672\"/${targets%, }/" -e 's/: 15s/: 1s/' "$ROOT/config/prometheus/prometheus.yml" \
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

stop_prometheus() {
  kill "$PROMETHEUS"
  wait "$PROMETHEUS" 2>/dev/null
  PROMETHEUS=
  rm -rf "$WORK/tsdb"
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
start_prometheus "$HTTP"
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

# A cluster of three nodes: killed, it lacks replicas, and the nodes that are left say so.
column_of() { # TITLE: of the table of nodes, a line for each
  awk -v title="$1" '$1 == "node" {for (i = 2; i <= NF; i++) if ($i == title) place = i}
    $1 ~ /^[123]$/ {print $place}' "$WORK/cluster.out"
}
cluster_starts() {
  "$ROOT/.venv/bin/entrepot" cluster start --any-ports --data-dir "$WORK/cluster" \
    >"$WORK/cluster.out" 2>&1 &
  CLUSTER=$!
  until_true 60 grep -q '^ready' "$WORK/cluster.out" || return
  BOOTSTRAP=$(column_of kafka | head -1)
  NODES=$(column_of http)
  "$ROOT/.venv/bin/entrepot" topics create trial -b "$BOOTSTRAP" --partitions 6 \
    --replication-factor 3 --set min.insync.replicas=2
}
is_well_named() {
  local node
  for node in $NODES; do
    curl -sf -u guest:guest "http://$node/metrics" >"$WORK/metrics" &&
      promtool check metrics <"$WORK/metrics" || return
  done
}
knows_of_three() {
  until_true 60 ask some 'count(up{job="entrepot"} == 1) == 3' &&
    until_true 60 ask some 'min(entrepot_cluster_nodes) == 3' &&
    until_true 60 ask some 'sum(entrepot_cluster_controller) == 1' &&
    until_true 60 ask some 'sum(entrepot_partitions_lacking) == 0' &&
    until_true 60 ask some 'sum(entrepot_partitions_led) >= 6'
}
misses_one() { # Node 3 is killed: the partitions of trial are led by others, and lack a replica.
  kill -9 "$(cat "$WORK/cluster/node-3/server.pid")" &&
    until_true 60 ask some 'max(entrepot_cluster_nodes) == 2' &&
    until_true 90 ask some 'sum(entrepot_partitions_lacking{problem="under-replicated"}) >= 6' &&
    until_true 60 ask some 'sum(entrepot_partitions_lacking{problem="offline"}) == 0' &&
    until_true 60 ask some 'ALERTS{alertname="EntrepotUnderReplicated"}'
}

stop_prometheus
check "a cluster starts" cluster_starts
# shellcheck disable=SC2086 # One address for each node.
start_prometheus $NODES
check "promtool finds nothing wrong with the names of a node" is_well_named
check "every node of a cluster is scraped" knows_of_three
check "a node that is killed is missed" misses_one
report
