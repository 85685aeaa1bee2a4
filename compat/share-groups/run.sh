#!/usr/bin/env bash
# Apache Kafka's own share consumer (KIP-932) and its tools, unchanged, against entrepot.
# Needs a JDK, and mvn the first time to fetch Kafka's jars.
. "$(dirname "$0")/../harness.sh"

KAFKA=$ROOT/bench/peers/kafka

command -v javac >/dev/null || { echo "SKIP  share-groups: no javac on the path"; exit 0; }
if ! ls "$KAFKA"/jars/kafka-tools-*.jar >/dev/null 2>&1; then
  command -v mvn >/dev/null || { echo "SKIP  share-groups: no mvn to fetch the jars"; exit 0; }
  mvn -B -q -f "$KAFKA" dependency:copy-dependencies || exit 1
fi
javac -cp "$KAFKA/jars/*" -d "$WORK/classes" "$HERE/Checks.java" || exit 1

java_check() {
  timeout 120 java -XX:TieredStopAtLevel=1 -cp "$WORK/classes:$KAFKA/jars/*" Checks "$BOOTSTRAP" "$1"
}
tool() {
  local class=$1
  shift
  timeout 120 java -XX:TieredStopAtLevel=1 -cp "$KAFKA/jars/*" "$class" \
    --bootstrap-server "$BOOTSTRAP" "$@"
}
groups() { tool org.apache.kafka.tools.consumer.group.ShareGroupCommand "$@"; }
configs() { tool kafka.admin.ConfigCommand "$@"; }
console() {
  tool org.apache.kafka.tools.consumer.ConsoleShareConsumer --topic lines --group console "$@"
}

set_a_setting() {
  configs --alter --entity-type groups --entity-name console \
    --add-config share.auto.offset.reset=earliest &&
    configs --describe --entity-type groups --entity-name console |
    grep -q 'share.auto.offset.reset=earliest'
}
refuse_a_setting() {
  ! configs --alter --entity-type groups --entity-name console \
    --add-config share.auto.offset.reset=sometime
}
consume_lines() {
  printf 'one\ntwo\nthree\n' | tool org.apache.kafka.tools.ConsoleProducer --topic lines &&
    expect $'one\ntwo\nthree' console --max-messages 3 --timeout-ms 30000
}
row_of_group() {
  groups --describe --group console --offsets | grep -E '^console ' | awk '{ print $2, $3, $4 }'
}
reset_by_tool() {
  groups --reset-offsets --group console --topic lines --to-earliest --execute &&
    expect 'lines 0 0' row_of_group
}
forget_a_topic() {
  groups --delete-offsets --group console --topic lines && ! row_of_group | grep -q lines
}

start_server
check "a setting of a group" set_a_setting
check "a setting it does not take" refuse_a_setting
check "console share consumer" consume_lines
check "a group's offsets" expect 'lines 0 3' row_of_group
check "reset offsets" reset_by_tool
check "delete offsets" forget_a_topic
check "ten consumers, each record once" java_check ten-consumers
check "three consumers of four partitions" java_check many-partitions
check "release" java_check release
check "delivery limit" java_check delivery-limit
check "reject, with a dead letter" java_check reject
check "record limit" java_check record-limit
check "only what is committed" java_check transactions
check "a lock ends" java_check lock-ends
check "renew" java_check renew
check "describe, list, delete" java_check describe
check "alter offsets" java_check reset
report
