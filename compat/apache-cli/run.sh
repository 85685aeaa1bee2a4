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

run() {
  local class=$1
  shift
  timeout 120 java -XX:TieredStopAtLevel=1 -cp "$KAFKA/jars/*" "$class" \
    --bootstrap-server "$BOOTSTRAP" "$@"
}
tool() { run "org.apache.kafka.tools.$@"; }
topics() { tool TopicCommand "$@"; }
groups() { tool consumer.group.ConsumerGroupCommand "$@"; }
configs() { run kafka.admin.ConfigCommand "$@"; }
transactions() { tool TransactionsCommand "$@"; }
acls() { tool AclCommand "$@"; }
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

# --- groups

group_rows() {
  groups --describe --group "$1" | grep -E "^$1 " | awk '{ print $2, $3, $4, $5, $6 }'
}
group_goes_on() {
  echo more | tool ConsoleProducer --topic $TOPIC && expect more consumer --group readers --max-messages 1
}
lists_group() {
  groups --list | grep -qx readers
}
state_of_group() {
  groups --describe --group readers --state | grep -E "^readers .*Empty +0$"
}
members_of_group() {
  consumer --group present --max-messages 1 --consumer-property group.protocol="$1" &
  local consumer=$! found=1
  for _ in $(seq 10); do
    groups --describe --group present --members | grep -E "^present .* 1 *$" && found=0 && break
  done
  echo farewell | tool ConsoleProducer --topic $TOPIC
  wait "$consumer" && return $found
}
reset_is_refused() {
  groups --reset-offsets --group nosuch --topic nosuch --to-earliest --execute | grep -q Error
}
read_again() {
  groups --reset-offsets --group readers --topic $TOPIC --to-offset 6 --execute &&
    expect more consumer --group readers --max-messages 1
}
group_is_gone() {
  ! groups --list | grep -qx readers
}

# --- settings, quotas and passwords

describe_settings() {
  configs --describe --entity-type topics --entity-name $TOPIC | grep -F "retention.ms=60000 sensitive=false"
}
settings_are_gone() {
  ! configs --describe --entity-type topics --entity-name $TOPIC | grep -F "retention.ms"
}
describe_broker() {
  configs --describe --entity-type brokers --entity-name 1 --all | grep -F "node.id=1 "
}
set_broker() {
  configs --alter --entity-type brokers "$@" --add-config log.retention.ms=70000
}
describe_set_broker() {
  configs --describe --entity-type brokers --entity-name 1 |
    grep -F "synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=70000, DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=70000"
}
broker_refuses() {
  configs --alter --entity-type brokers --entity-name 1 --add-config num.partitions=3 2>&1 |
    grep -F "Cannot update these configs dynamically"
}
quorum() {
  tool MetadataQuorumCommand describe --status | grep -E "LeaderId: +1"
}
reassign() {
  echo '{"version":1,"partitions":[{"topic":"'$TOPIC'","partition":0,"replicas":['"$1"']}]}' >"$WORK/plan"
  tool reassign.ReassignPartitionsCommand --reassignment-json-file "$WORK/plan" --execute
}
reassign_elsewhere() {
  reassign 2 2>&1 | grep -E "Unknown broker|no such broker"
}
user() {
  configs --alter --entity-type users --entity-name ana --add-config "$1" &&
    configs --describe --entity-type users --entity-name ana | grep -F "'ana' are $2"
}

# --- transactions and ACLs

produce_in_transactions() {
  tool ProducerPerformance --topic $TOPIC --num-records 10 --record-size 10 --throughput -1 \
    --transactional-id mover --transaction-duration-ms 100
}
lists_transactions() {
  transactions list | grep -E "^mover .*CompleteCommit"
}
describes_transaction() {
  transactions describe --transactional-id mover | grep -E "mover"
}
describes_producers() {
  transactions describe-producers --topic $TOPIC --partition 0 | grep -E "^[0-9]+"
}
leave_open() {
  "$ROOT/.venv/bin/python" - "$BOOTSTRAP" $TOPIC <<'PROGRAM'
import os, sys
from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": sys.argv[1], "transactional.id": "left"})
producer.init_transactions(30)
producer.begin_transaction()
producer.produce(sys.argv[2], "left", partition=0)
assert producer.flush(30) == 0
os._exit(0)  # As if it were killed.
PROGRAM
}
abort_transaction() {
  leave_open || return 1
  local offset
  offset=$(transactions describe-producers --topic $TOPIC --partition 0 |
    awk '$NF ~ /^[0-9]+$/ { print $NF }')
  transactions abort --topic $TOPIC --partition 0 --start-offset "$offset" &&
    transactions list | grep -E "^left .*CompleteAbort"
}
adds_acl() {
  acls --add --allow-principal User:ana --operation Read --topic $TOPIC
}
lists_acl() {
  acls --list --topic $TOPIC | grep -F "principal=User:ana, host=*, operation=READ, permissionType=ALLOW"
}
removes_acl() {
  acls --remove --force --allow-principal User:ana --operation Read --topic $TOPIC &&
    ! acls --list --topic $TOPIC | grep -F "User:ana"
}

# ACLs are there where they are heeded, and here nobody says who they are.
cat >"$WORK/entrepot" <<END
#!/bin/sh
exec ${ENTREPOT:-$ROOT/.venv/bin/entrepot} "\$@" --set security.authorization=true \
  --set 'security.super_users=["User:ANONYMOUS"]'
END
chmod +x "$WORK/entrepot"
ENTREPOT=$WORK/entrepot
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
check "consume in a group" expect $'msg 1\nmsg 2\nsdcc\nTor Vergata\nsdcc\nTor Vergata' \
  consumer --group readers --from-beginning --max-messages 6
check "the group goes on where it was" group_goes_on
check "list groups" lists_group
check "describe the group" expect "$TOPIC 0 7 7 0" group_rows readers
check "the state of the group" state_of_group
check "members of a group" members_of_group classic
check "members of a group of the newer protocol" members_of_group consumer
check "resetting offsets of what is not there is refused" reset_is_refused
check "offsets are reset and read again" read_again
check "delete offsets" groups --delete-offsets --group readers --topic $TOPIC
check "delete the group" expect "Deletion of requested consumer groups ('readers') was successful." \
  groups --delete --group readers
check "the group is gone" group_is_gone
check "set a topic's settings" configs --alter --entity-type topics --entity-name $TOPIC \
  --add-config retention.ms=60000
check "describe a topic's settings" describe_settings
check "unset a topic's settings" configs --alter --entity-type topics --entity-name $TOPIC \
  --delete-config retention.ms
check "a topic's settings are gone" settings_are_gone
check "describe a broker's settings" describe_broker
check "set a broker's settings" set_broker --entity-name 1
check "set the settings of all brokers" set_broker --entity-default
check "describe what was set on a broker" describe_set_broker
check "a setting that is the broker's own is refused" broker_refuses
check "describe the quorum" quorum
check "place a partition where it is" reassign 1
check "placing a partition elsewhere is refused" reassign_elsewhere
check "no partition is being reassigned" tool reassign.ReassignPartitionsCommand --list
check "set and describe a quota" user producer_byte_rate=1000 producer_byte_rate=1000.0
check "set and describe a password" \
  user 'SCRAM-SHA-256=[iterations=4096,password=secret]' SCRAM-SHA-256=iterations=4096
check "produce in transactions" produce_in_transactions
check "list transactions" lists_transactions
check "describe a transaction" describes_transaction
check "describe producers" describes_producers
check "find hanging transactions" transactions find-hanging --broker-id 1
check "abort a transaction that was left open" abort_transaction
check "add an ACL" adds_acl
check "list ACLs" lists_acl
check "remove an ACL" removes_acl
check "delete the topic" topics --delete --topic $TOPIC
check "the topic is gone" list_without_topic
report
