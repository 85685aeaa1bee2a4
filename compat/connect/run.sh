#!/usr/bin/env bash
# Connectors against PostgreSQL, MariaDB, an S3 server and RabbitMQ: the tests of
# tests/end_to_end that `make test` runs on SQLite, on a directory and on an entrepot.
#
# The servers run on 127.0.0.1, on free ports, in a temporary directory, and not as root. What
# is not installed is fetched with apt-get and unpacked there, and moto with pip; where that
# cannot be done, and where there is no RabbitMQ, the checks are skipped. PYTHON is the one that has entrepot[test,connect].
. "$(dirname "$0")/../harness.sh"

PYTHON=${PYTHON:-$ROOT/.venv/bin/python}
STARTED=()
chmod 711 "$WORK"

stop_servers() {
  for pid in "${STARTED[@]}"; do
    kill "$pid" 2>/dev/null && wait "$pid" 2>/dev/null
  done
  finish
}
trap stop_servers EXIT

# Databases refuse to run as root. What they write is theirs.
plainly() {
  if [ "$(id -u)" -eq 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else "$@"; fi
}
# serve COMMAND...: in the background, until the end. The process is the server's own.
serve() {
  if [ "$(id -u)" -eq 0 ]; then set -- setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; fi
  (exec "$@") &
  STARTED+=($!)
}
own_directory() {
  mkdir -p "$1"
  [ "$(id -u)" -ne 0 ] || chown 65534:65534 "$1"
}
free_port() {
  "$PYTHON" -c 'import socket; s = socket.create_server(("127.0.0.1", 0)); print(s.getsockname()[1])'
}
# unpack PACKAGE...: into $WORK/unpacked, without installing anything.
unpack() {
  mkdir -p "$WORK/debs" "$WORK/unpacked" &&
    (cd "$WORK/debs" && apt-get download "$@" >"$WORK/apt" 2>&1) || return
  for package in "$WORK"/debs/*.deb; do dpkg -x "$package" "$WORK/unpacked" || return; done
}
# until_it COMMAND...: waits until it succeeds, a minute at the most.
until_it() {
  for _ in $(seq 300); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.2
  done
  return 1
}

start_postgresql() {
  local bin port
  bin=$(ls -d "$WORK"/unpacked/usr/lib/postgresql/*/bin /usr/lib/postgresql/*/bin 2>/dev/null | tail -1)
  if [ -z "$bin" ]; then
    unpack postgresql-15 postgresql-client-15 libpq5 || return
    bin=$(ls -d "$WORK"/unpacked/usr/lib/postgresql/*/bin)
  fi
  port=$(free_port)
  own_directory "$WORK/postgresql"
  plainly "$bin/initdb" -D "$WORK/postgresql" -U ana -A trust >"$WORK/initdb" 2>&1 || return
  serve "$bin/postgres" -D "$WORK/postgresql" -c listen_addresses=127.0.0.1 -p "$port" \
    -c unix_socket_directories= >"$WORK/postgresql.log" 2>&1
  until_it "$bin/pg_isready" -h 127.0.0.1 -p "$port" || return
  export ENTREPOT_POSTGRESQL=127.0.0.1:$port:ana::postgres
}

start_mysql() {
  local prefix=/usr port
  if [ ! -x /usr/sbin/mariadbd ]; then
    unpack mariadb-server mariadb-server-core mariadb-client-core liburing2 libaio1 libpmem1 \
      libsnappy1v5 libnuma1 || return
    prefix=$WORK/unpacked/usr
    LD_LIBRARY_PATH=$(ls -d "$WORK"/unpacked/usr/lib/*-linux-gnu):$(ls -d "$WORK"/unpacked/lib/*-linux-gnu)
    export LD_LIBRARY_PATH
  fi
  port=$(free_port)
  own_directory "$WORK/mysql"
  local common=(--no-defaults --datadir="$WORK/mysql" --lc-messages-dir="$prefix/share/mysql")
  cat "$prefix/share/mysql/mysql_system_tables.sql" "$prefix/share/mysql/mysql_system_tables_data.sql" \
    >"$WORK/system.sql" || return
  { printf 'CREATE DATABASE mysql;\nUSE mysql;\n'; cat "$WORK/system.sql"; } >"$WORK/bootstrap.sql"
  plainly "$prefix/sbin/mariadbd" "${common[@]}" --bootstrap <"$WORK/bootstrap.sql" \
    >"$WORK/mysql.log" 2>&1 || return
  serve "$prefix/sbin/mariadbd" "${common[@]}" --bind-address=127.0.0.1 --port="$port" \
    --socket="$WORK/mysql/socket" --skip-grant-tables --skip-networking=0 >>"$WORK/mysql.log" 2>&1
  unset LD_LIBRARY_PATH
  until_it "$PYTHON" -c "
import pymysql
with pymysql.connect(host='127.0.0.1', port=$port, user='ana').cursor() as cursor:
    cursor.execute('CREATE DATABASE IF NOT EXISTS trial')" || return
  export ENTREPOT_MYSQL=127.0.0.1:$port:ana::trial
}

start_s3() {
  local port python=$PYTHON
  if ! "$python" -c 'import moto.server' 2>/dev/null; then
    "$PYTHON" -m venv "$WORK/moto" && "$WORK/moto/bin/pip" -q install 'moto[s3,server]' || return
    python=$WORK/moto/bin/python
  fi
  port=$(free_port)
  "$python" -m moto.server -H 127.0.0.1 -p "$port" >"$WORK/moto.log" 2>&1 &
  STARTED+=($!)
  until_it "$PYTHON" -c "
import urllib.request
urllib.request.urlopen(urllib.request.Request('http://127.0.0.1:$port/trial', method='PUT'))" || return
  export ENTREPOT_S3=http://127.0.0.1:$port/trial
}

start_rabbitmq() {
  local rabbitmq port mapper_port home=$WORK/rabbitmq
  rabbitmq=$(ls -d /usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server 2>/dev/null | tail -1)
  [ -n "$rabbitmq" ] || return
  port=$(free_port)
  mapper_port=$(free_port)
  own_directory "$home"
  local common=(env HOME="$home" ERL_EPMD_ADDRESS=127.0.0.1 ERL_EPMD_PORT="$mapper_port")
  serve "${common[@]}" epmd # By itself it would be a daemon whose number nobody knows.
  serve "${common[@]}" ERL_CRASH_DUMP=/dev/null RABBITMQ_DIST_PORT="$(free_port)" \
    RABBITMQ_NODENAME="connect$$@localhost" RABBITMQ_NODE_IP_ADDRESS=127.0.0.1 \
    RABBITMQ_NODE_PORT="$port" RABBITMQ_LOG_BASE="$home/log" RABBITMQ_MNESIA_BASE="$home/data" \
    RABBITMQ_GENERATED_CONFIG_DIR="$home/generated" RABBITMQ_PID_FILE="$home/pid" \
    RABBITMQ_CONF_ENV_FILE="$home/none" RABBITMQ_CONFIG_FILE="$home/none.conf" \
    RABBITMQ_ENABLED_PLUGINS_FILE="$home/plugins" "$rabbitmq" >"$WORK/rabbitmq.log" 2>&1
  local url=amqp://guest:guest@127.0.0.1:$port/%2F
  until_it "$PYTHON" -c "import pika; pika.BlockingConnection(pika.URLParameters('$url'))" || return
  export ENTREPOT_RABBITMQ=$url
}

run_tests() {
  (cd "$ROOT" && "$PYTHON" -m pytest -q -p no:cacheprovider "$1" -k "$2")
}

if start_postgresql; then
  check "PostgreSQL" run_tests tests/end_to_end/test_connect_databases.py postgresql
else
  echo "SKIP  PostgreSQL: cannot be started"
fi
if start_mysql; then
  check "MariaDB" run_tests tests/end_to_end/test_connect_databases.py mysql
else
  echo "SKIP  MariaDB: cannot be started"
fi
if start_s3; then
  check "S3" run_tests tests/end_to_end/test_connect_stores.py s3
  check "S3 as a store" run_tests tests/contracts/test_object_store.py s3
  check "S3 as a tier" run_tests tests/end_to_end/test_tier.py s3
else
  echo "SKIP  S3: moto cannot be started"
fi
if start_rabbitmq; then
  check "RabbitMQ" run_tests tests/end_to_end/test_connect_amqp.py rabbitmq
else
  echo "SKIP  RabbitMQ: not installed"
fi
report
