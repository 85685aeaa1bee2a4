#!/usr/bin/env bash
# RabbitMQ's own tool for its management API, unchanged, against ours.
#
# MANAGEMENT=host:port is a broker that is already there, ours or a RabbitMQ: with that they all
# pass, too. RABBITMQADMIN is the tool; by default the one that RabbitMQ's Debian package brings.
. "$(dirname "$0")/../harness.sh"

RABBITMQADMIN=${RABBITMQADMIN:-$(echo /usr/lib/rabbitmq/lib/rabbitmq_server-*/plugins/rabbitmq_management-*/priv/www/cli/rabbitmqadmin)}

start_managed() {
  [ -n "${MANAGEMENT:-}" ] && return
  # shellcheck disable=SC2086 # The command may have arguments.
  ${ENTREPOT:-$ROOT/.venv/bin/entrepot} serve --data-dir "$WORK/data" \
    --kafka-port off --amqp-port off --http-port 0 --mqtt-port off --stomp-port off --sqs-port off >"$WORK/stdout" 2>"$WORK/stderr" &
  SERVER=$!
  for _ in $(seq 300); do
    grep -qx ready "$WORK/stdout" && break
    kill -0 "$SERVER" 2>/dev/null || break
    sleep 0.1
  done
  MANAGEMENT=$(sed -n 's/^ *http *//p' "$WORK/stdout")
  [ -n "$MANAGEMENT" ] || { cat "$WORK/stderr" >&2; exit 1; }
}

admin() {
  python3 "$RABBITMQADMIN" --host "${MANAGEMENT%:*}" --port "${MANAGEMENT##*:}" --format tsv "$@"
}

makes_and_lists() {
  admin declare queue name=compat durable=true 'arguments={"x-max-priority":5}' &&
    admin declare exchange name=compat.x type=topic &&
    admin declare binding source=compat.x destination=compat routing_key=a.b &&
    admin list queues name durable type >"$WORK/got" &&
    grep -qxF $'compat\tTrue\tclassic' "$WORK/got" &&
    admin list bindings source destination routing_key >"$WORK/got" &&
    grep -qxF $'compat.x\tcompat\ta.b' "$WORK/got"
}

publishes_and_gets() {
  admin publish exchange=compat.x routing_key=a.b payload=hello &&
    admin publish exchange=amq.default routing_key=compat payload=again &&
    admin get queue=compat count=2 >"$WORK/got" && grep -q hello "$WORK/got" &&
    admin get queue=compat count=1 ackmode=ack_requeue_false >"$WORK/got" &&
    grep -q hello "$WORK/got" &&
    admin purge queue name=compat
}

unbinds_and_deletes() {
  admin delete binding source=compat.x destination_type=queue destination=compat \
    properties_key=a.b &&
    admin delete queue name=compat && admin delete exchange name=compat.x &&
    ! admin delete queue name=compat
}

keeps_users() {
  admin declare vhost name=compat.v &&
    admin declare user name=compat.u password=secret tags= &&
    admin declare permission vhost=compat.v user=compat.u 'configure=^a' 'write=.*' 'read=.*' &&
    admin list permissions vhost user configure >"$WORK/got" &&
    grep -qxF $'compat.v\tcompat.u\t^a' "$WORK/got" &&
    admin delete user name=compat.u && admin delete vhost name=compat.v
}

exports_and_imports() {
  admin declare exchange name=compat.kept type=fanout &&
    admin export "$WORK/definitions.json" && admin delete exchange name=compat.kept &&
    admin import "$WORK/definitions.json" && admin delete exchange name=compat.kept
}

tells_of_itself() {
  admin show overview && admin list nodes name && admin list connections && admin list channels &&
    admin list consumers && admin list users && admin list vhosts
}

[ -f "$RABBITMQADMIN" ] || { echo "SKIP  rabbitmqadmin: not installed"; exit 0; }
start_managed
check "queues, exchanges and bindings are made and listed" makes_and_lists
check "messages are published, looked at and taken" publishes_and_gets
check "bindings, queues and exchanges are deleted" unbinds_and_deletes
check "virtual hosts, users and permissions come and go" keeps_users
check "definitions are exported and imported" exports_and_imports
check "the broker tells of itself" tells_of_itself
report
