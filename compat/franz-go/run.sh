#!/usr/bin/env bash
# franz-go's own tests of its client, unchanged, against entrepot with each durability. Needs go,
# and the first time the Go module proxy: a module comes with its tests.
#
# RECORDS is how many go through the tests of groups and transactions (default: 20000).
# A broker given as BOOTSTRAP is tested once, under the name of the first durability.
. "$(dirname "$0")/../harness.sh"

VERSION=v1.22.2
# What goes through a chain of groups, of share groups and of transactions: with each durability.
CHAINS="TestGroupETL TestShareGroupETL TestTxnEtl"
# What else asks a broker; see FINDINGS.md for what is left out.
OTHERS="TestPing TestUnknownGroupOffsetFetchPinned TestIssue1034 TestShareGroup TestIssue325
  TestConsumeTopicRetrieval TestConsumeTopicRetrieval_Many TestConsumeRegex
  TestConsumeRegexShareSkipsInternal Test848RegexBrokerResolves TestIssue337
  TestDirectPartitionPurge TestIssue434 TestAddRemovePartitions TestPauseIssue489
  TestPauseIssueOct2023 TestIssue523 TestIssue648 TestIssue810 TestIssue865
  TestIssueFetchLargerThanBrokerMaxReadBytes TestPooling TestGroupSimple TestHookPollStart
  TestConsumeMaxDecompressBatchBytes TestClient_Produce TestIssue769
  TestIssueProduceSyncManualPartitionNegativeDoesNotPanic TestIssue831
  TestClient_ProduceLargeMessages TestShareGroupAckOnClose TestShareGroupOffsetsAdmin"

command -v go >/dev/null || { echo "SKIP  franz-go: no go on the path"; exit 0; }
export GOFLAGS=-buildvcs=false
directory=$(cd "$WORK" && go mod download -json "github.com/twmb/franz-go@$VERSION" |
  sed -n 's/^.*"Dir": "\(.*\)",*$/\1/p')
[ -n "$directory" ] || { echo "SKIP  franz-go: its module could not be fetched"; exit 0; }
cp -r "$directory" "$WORK/franz-go"
chmod -R u+w "$WORK/franz-go"
cd "$WORK/franz-go/pkg/kgo" || exit 1
go test -c -o "$WORK/kgo.test" . || exit 1

# Passing means that it ran: a test that skips itself has shown nothing.
run_test() {
  KGO_SEEDS=$BOOTSTRAP KGO_LOG_LEVEL=none KGO_TEST_RF=1 KGO_TEST_RECORDS=${RECORDS:-20000} \
    timeout 330 "$WORK/kgo.test" -test.v -test.timeout 300s -test.run "^$1\$" &&
    ! grep -q "^--- SKIP: $1 " "$WORK/said"
}

given=${BOOTSTRAP:-}
for durability in fsync os interval; do
  start_server --durability "$durability"
  for name in $CHAINS; do
    check "$durability: $name" run_test "$name"
  done
  if [ "$durability" = fsync ]; then
    for name in $OTHERS; do
      check "$name" run_test "$name"
    done
  fi
  [ -n "$given" ] && break
  stop_server
done
report
