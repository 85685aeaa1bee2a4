#!/usr/bin/env bash
# The real Apache Kafka command line tools, unchanged, against entrepot: the first hour of
# any Kafka course. Needs java, and mvn the first time to fetch the tools.
. "$(dirname "$0")/../harness.sh"

KAFKA=$ROOT/bench/peers/kafka
TOPIC=test

command -v java >/dev/null || { echo "SKIP  apache-cli: no java on the path"; exit 0; }
if ! ls "$KAFKA"/jars/kafka-tools-*.jar >/dev/null 2>&1; then
  command -v mvn >/dev/null || { echo "SKIP  apache-cli: no mvn to fetch the tools"; exit 0; }
  mvn -B -q -f "$KAFKA" dependency:copy-dependencies || exit 1
fi

tool() {
  local class=$1
  shift
  timeout 120 java -XX:TieredStopAtLevel=1 -cp "$KAFKA/jars/*" "org.apache.kafka.tools.$class" \
    --bootstrap-server "$BOOTSTRAP" "$@"
}
topics() { tool TopicCommand "$@"; }
consumer() { tool consumer.ConsoleConsumer --topic $TOPIC --timeout-ms 60000 "$@"; }

create_again() {
  ! topics --create --topic $TOPIC
}
describe() {
  topics --describe --topic $TOPIC | grep -E "PartitionCount: 1.*ReplicationFactor: 1"
}
produce_lines() {
  printf 'msg 1\nmsg 2\n' | tool ConsoleProducer --topic $TOPIC
}
produce_keyed() {
  printf 'course:sdcc\nuniversity:Tor Vergata\n' |
    tool ConsoleProducer --topic $TOPIC "$1" parse.key=true "$1" key.separator=:
}
list_with_topic() {
  topics --list | grep -x $TOPIC
}
list_without_topic() {
  ! topics --list | grep -qx $TOPIC
}

start_server
check "create a topic" expect "Created topic $TOPIC." \
  topics --create --replication-factor 1 --partitions 1 --topic $TOPIC
check "creating it again is refused" create_again
check "describe it" describe
check "list topics" list_with_topic
check "produce lines" produce_lines
check "produce keyed lines with --property" produce_keyed --property
check "consume from an offset" expect $'sdcc\nTor Vergata' \
  consumer --partition 0 --offset 2 --max-messages 2
check "consume keys and values" expect $'null=msg 1\nnull=msg 2\ncourse=sdcc\nuniversity=Tor Vergata' \
  consumer --partition 0 --offset earliest --max-messages 4 \
  --formatter-property print.key=true --formatter-property key.separator==
check "produce keyed lines with --reader-property" produce_keyed --reader-property
check "consume from the beginning" expect $'msg 1\nmsg 2\nsdcc\nTor Vergata' \
  consumer --from-beginning --max-messages 4
check "delete the topic" topics --delete --topic $TOPIC
check "the topic is gone" list_without_topic
report
