#!/usr/bin/env bash
# Spark's own Kafka connector, unchanged, against entrepot: tables and streams, in and out.
# Needs java and a Python with pyspark, and mvn the first time to fetch the connector.
. "$(dirname "$0")/../harness.sh"

PEER=$ROOT/bench/peers/spark-kafka
PYTHON=${PYTHON:-$ROOT/.venv/bin/python}

command -v java >/dev/null || { echo "SKIP  spark-kafka: no java on the path"; exit 0; }
"$PYTHON" -c 'import pyspark, confluent_kafka' 2>/dev/null ||
  { echo "SKIP  spark-kafka: $PYTHON has no pyspark, or no confluent_kafka"; exit 0; }
if ! ls "$PEER"/jars/spark-sql-kafka-*.jar >/dev/null 2>&1; then
  command -v mvn >/dev/null || { echo "SKIP  spark-kafka: no mvn to fetch it"; exit 0; }
  mvn -B -q -f "$PEER" dependency:copy-dependencies || exit 1
fi

# Spark starts once and does everything; what it says of a check is looked up here.
passed() {
  grep -qxF "PASS $1" "$WORK/results" && return
  grep -F "FAIL $1" "$WORK/results" || tail -20 "$WORK/spark.log"
  return 1
}

start_server
timeout 600 "$PYTHON" "$HERE/checks.py" "$BOOTSTRAP" "$PEER/jars" "$WORK" \
  >"$WORK/results" 2>"$WORK/spark.log"
while read -r name; do
  check "$name" passed "$name"
done < <("$PYTHON" "$HERE/checks.py" --list)
report
