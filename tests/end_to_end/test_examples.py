"""The examples do what they say, as a person runs them."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def said(module: str, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.slow
def test_telemetry_is_lost() -> None:
    """Proves N-01, N-06 and N-07: acks=0, and a crash after the commit loses the event."""
    assert said("examples.delivery.telemetry") == [
        "19 of 20 readings recorded",
        "lost: reading 10",
        "twice: none",
    ]


def test_an_email_is_sent_twice() -> None:
    """Proves N-02, N-06 and N-07: a crash before the commit repeats the event."""
    assert said("examples.delivery.email") == [
        "20 of 20 letters sent",
        "lost: none",
        "twice: letter 10",
    ]


@pytest.mark.slow
def test_money_is_neither_lost_nor_paid_twice() -> None:
    """Proves N-05 and N-07: the crash left one record that nobody sees who need not."""
    assert said("examples.delivery.money") == [
        "20 of 20 orders paid",
        "lost: none",
        "twice: none",
        "who reads uncommitted records sees 21",
    ]


@pytest.mark.slow
def test_half_messages_delay_levels_and_tags() -> None:
    """Proves SYS-36: what a shop booked before it was killed is delivered, and nothing else."""
    assert said("examples.delivery.half_messages") == [
        "a lamp: the shop is done",
        "a chair: the shop has died before commit",
        "a table: the shop has died before booking",
        "to be packed: a chair, a lamp",
        "after a second: count the lamps",
        "more: None",
    ]


@pytest.mark.slow
def test_a_killed_workers_photo_is_done_by_another() -> None:
    """Proves H-15."""
    assert said("examples.sqs.photos") == [
        "30 links wait",
        "3 workers",
        "1 worker was killed with a photo in its hands",
        "30 photos are done, that one too",
    ]


@pytest.mark.slow
def test_a_large_payload_goes_by_reference() -> None:
    """Proves H-03."""
    assert said("examples.sqs.claim_check") == [
        "262145 bytes in a message: InvalidParameterValue",
        "20971520 bytes stored, a reference sent",
        "20971520 bytes received, the same",
        "0 payloads are left in the store",
    ]


@pytest.mark.slow
def test_the_numbers_of_sqs() -> None:
    """Proves NUM-1: the numbers, and what waiting costs."""
    lines = said("examples.sqs.numbers")
    assert [line.split()[-2:] for line in lines[:1]] == [["30", "s"]]
    assert [line.split()[-1] for line in lines[1:4]] == ["10", "262,144", "14"]
    asking, waiting, *sending = [line.split() for line in lines[-4:]]
    requests = [int(words[-4].replace(",", "")) for words in (asking, waiting)]
    assert requests[0] > 2 * requests[1]  # Nothing but empty answers is between them.
    assert [words[-2] for words in sending] == ["1,000,000", "100,000"]


@pytest.mark.slow
def test_orders_cross_three_managers_while_the_middle_is_killed() -> None:
    """Proves F-02 and F-08."""
    lines = said("examples.links.three_hops")
    assert len(lines) == 6
    assert lines[-1] == "100 of 100 orders are in Tokyo, 0 of them more than once"


@pytest.mark.slow
def test_shops_reach_each_other_by_the_office() -> None:
    """Proves AA-03: hub and spoke."""
    shops = ("rome", "oslo", "lima")
    assert said("examples.links.hub_and_spoke") == [
        f"{one} asks {other} for two shirts"
        for other in shops
        for one in sorted(shops)
        if one != other
    ]


@pytest.mark.slow
def test_a_platform_for_devices_that_come_and_go() -> None:
    """Proves AB-10 and AD-05."""
    assert said("examples.mqtt.platform") == [
        "12 devices, each by 6 combinations of version and transport",
        "144 of 144 readings are in the topic, 0 of them more than once",
        "216 of 216 commands were obeyed, once and in order",
        "3 times the broker was killed meanwhile",
    ]


@pytest.mark.slow
def test_a_master_and_its_workers_share_a_space() -> None:
    """Proves Z-05."""
    lines = said("examples.spaces.master_worker")
    assert lines[0] == "a worker is killed"
    assert "task 5 is written again" in lines
    assert lines[-1] == "2668 primes below 24000"


@pytest.mark.slow
def test_caches_are_told_what_is_no_longer_valid() -> None:
    assert said("examples.gossip.caches") == [
        "6 of 6 caches dropped /index",
        "6 of 6 caches kept /about",
    ]


@pytest.mark.slow
def test_requests_are_sent_around_a_server_that_has_failed() -> None:
    assert said("examples.gossip.around_failures") == [
        "all are there: server 1: 3, server 2: 3, server 3: 3, server 4: 3",
        "server 2 has failed: server 1: 4, server 3: 4, server 4: 4",
    ]


@pytest.mark.slow
def test_four_uses_of_multicast() -> None:
    assert said("examples.gossip.uses_of_multicast") == [
        "discovery: node 0 finds printing at node 4",
        "replicated data: 5 of 5 nodes have balance = 100",
        "events: 5 of 5 nodes were notified",
        "replicated service: replicas [1, 2] answer, 3 is gone",
    ]


@pytest.mark.slow
def test_initiator_and_addressee() -> None:
    """Proves AB-02 and NUM-21: each cell of the table is run, and found where it belongs."""
    assert said("examples.interaction.models") == [
        "addressee  consumer begins          producer begins",
        "direct     request/reply            callback",
        "indirect   anonymous request/reply  event-based",
    ]


@pytest.mark.slow
def test_coupling_in_space_and_time() -> None:
    """Proves NUM-15."""
    assert said("examples.interaction.coupling") == [
        "                    coupled in time  uncoupled in time",
        "coupled in space    a connection     a mailbox",
        "uncoupled in space  a subject        a topic",
    ]


@pytest.mark.slow
def test_choreography() -> None:
    """Proves AB-03: nobody orchestrates, who is away misses nothing, who is added disturbs none."""
    assert said("examples.interaction.choreography") == [
        "shipping is away: o-3 is packed",
        "o-1: placed, paid, packed, shipped",
        "o-2: placed, refused",
        "o-3: placed, paid, packed, shipped, placed, paid, packed, shipped, written",
    ]


@pytest.mark.slow
def test_a_dealing_room() -> None:
    """Proves X-15."""
    assert said("examples.interaction.dealing_room") == [
        "ana: IBM 165, IBM 170, Telco 120, Telco 70, Telco 90",
        "bert: Telco 70, Telco 90",
        "carla: Oil 80",
        "dora: Oil 80, Pasta 3, Telco 90",
    ]


@pytest.mark.slow
def test_a_feedback_loop() -> None:
    """Proves AB-09: consumers follow the broker's own count of what is ready."""
    done, workers = said("examples.interaction.feedback")
    assert done == "400 of 400 messages are done"
    most = int(workers.removeprefix("workers: 1 at first, ").split()[0])
    assert most > 1
    assert workers.endswith(" at most, 1 in the end")


@pytest.mark.slow
def test_an_event_channel() -> None:
    """Proves SYS-21: push and pull on both sides, and a sensor that is replaced."""
    assert said("examples.interaction.event_channel") == [
        "navigation is called: laser: wall at 3 m; battery: 80 %; camera: wall at 2 m",
        "the log asks: battery: 80 %; camera: wall at 2 m; laser: wall at 3 m",
    ]


@pytest.mark.slow
def test_a_trace() -> None:
    """Proves B-09: tracing."""
    pytest.importorskip("opentelemetry.proto", reason="the extra otel is not installed")
    assert said("examples.interaction.traced") == [
        "1 trace:",
        "order placed (shop)",
        "  publish shop.orders (entrepot)",
        "    route (entrepot)",
        "  deliver orders (entrepot)",
        "  packed a lamp (worker)",
    ]


@pytest.mark.slow
def test_rides() -> None:
    """Proves SYS-43: Uber's, cars that are matched with riders while their positions are new."""
    assert said("examples.interaction.rides") == [
        "24 riders have a car each",
        "cars with two riders: 0",
        "cars that are not there any more: 0",
        "cars that are free: 4",
    ]


@pytest.mark.slow
def test_followers() -> None:
    """Proves SYS-43: Spotify's, for who is there now and for who comes later."""
    later = "ben added Blue in Green; ben added Giant Steps; ben plays Naima"
    assert said("examples.interaction.followers") == [
        f"ana's phone: {later}; ben plays So What",
        f"her laptop, switched on later: {later}",
    ]


@pytest.mark.slow
def test_the_rows_of_scale() -> None:
    """Proves NUM-14: all are acknowledged. How fast is for people to read."""
    heads, *rows = said("examples.interaction.scale", "5000")
    assert heads.split()[-2:] == ["here", "times"]
    targets = [row.split("  ")[0] + ":" + " ".join(row.split()[-5:-2]) for row in rows]
    assert targets == [
        "LinkedIn:571 100 24,802",
        "Netflix:1 100 2,894",
        "Netflix, at its peak:1 2,700 6,366",
    ]
