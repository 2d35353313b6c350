"""Trace context: W3C's two texts. A good one is carried, a bad one is dropped, and work is the same work either way."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import Lab
from labkit.control import trace_context
from labkit.control.envelope import Envelope
from labkit.control.trace_context import TraceContext, carried, parse
from labkit.state.idempotency import IdempotencyStore, Work

# The recommendation's own examples: w3.org/TR/trace-context, "Examples of HTTP traceparent Headers".
SAMPLED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
NOT_SAMPLED = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def envelope(**fields: Any) -> Envelope:
    return Envelope.new(conversation_id="8842", step=7, agent_class="researcher", payload={"n": 1}, **fields)


def test_the_recommendations_examples() -> None:
    assert parse(SAMPLED) == TraceContext(TRACE, SPAN, 1)
    assert parse(NOT_SAMPLED) == TraceContext(TRACE, SPAN, 0)
    assert [parse(each).sampled for each in (SAMPLED, NOT_SAMPLED)] == [True, False]  # type: ignore[union-attr]
    assert parse(SAMPLED).traceparent == SAMPLED  # type: ignore[union-attr]


# Each rule of "traceparent Header Field Values" and "Versioning of traceparent".
@pytest.mark.parametrize(
    "bad",
    [
        "", "00", SAMPLED.upper(), SAMPLED[:-1], SAMPLED + "0", SAMPLED + "-extra", SAMPLED.replace("00-4", "ff-4"),
        SAMPLED.replace(TRACE, "0" * 32), SAMPLED.replace(SPAN, "0" * 16), SAMPLED.replace("-", "_"),
        SAMPLED.replace("4bf9", "4bfg"), SAMPLED.replace("00f0", "00F0"), f"0{SAMPLED}", "x" * 55, SAMPLED + "\n",
        f"01-{TRACE}-{SPAN}-01.x", None, 7, b"00", [SAMPLED], {"traceparent": SAMPLED},
    ],
)  # fmt: skip
def test_what_does_not_parse_is_none_and_costs_no_envelope(bad: Any) -> None:
    assert parse(bad, "a=b") is None
    made = Envelope.parse({**json.loads(envelope().detail()), "traceparent": bad, "tracestate": "a=b"})
    assert (made.traceparent, made.tracestate) == (None, None)
    assert made.trace_id == "conv-8842-step-7"


def test_a_later_version_is_read_as_far_as_this_one_goes_and_passed_on_as_00() -> None:
    later = parse(f"cc-{TRACE}-{SPAN}-ff-what-the-future-holds")
    assert later == TraceContext(TRACE, SPAN, 1)  # of its flags only the one that is known
    assert later.traceparent == SAMPLED
    assert parse(f"  {SAMPLED}\t") == TraceContext(TRACE, SPAN, 1)


@pytest.mark.parametrize(
    "state", ["congo=t61rcWkgMzE", "rojo=00f067aa0ba902b7,congo=ucfJifl5GOE", "a=1, b=2", "fw529a3039@dt=FfIFIF"]
)
def test_a_tracestate_is_carried_as_it_is(state: str) -> None:
    made = envelope(traceparent=SAMPLED, tracestate=state)
    assert made.tracestate == state
    assert Envelope.parse(made.detail()).tracestate == state


@pytest.mark.parametrize(
    "state",
    ["", "  ", "=", "a", "A=1", "a=1,a=2", "a=" + "x" * 600, ",".join(f"k{n}=v" for n in range(33)), "a=\n", 5, None],
)
def test_a_bad_tracestate_costs_itself_and_not_the_traceparent(state: Any) -> None:
    found = parse(SAMPLED, state)
    assert found == TraceContext(TRACE, SPAN, 1, None)


@given(
    st.text(max_size=80) | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?"),
    st.text(max_size=60),
)
def test_nothing_that_a_sender_writes_raises(parent: str, state: str) -> None:
    found = parse(parent, state)
    if found is not None:
        again = parse(found.traceparent, found.state)
        assert again == found  # what is passed on is read the same
        assert int(found.trace_id, 16)
        assert int(found.span_id, 16)


def test_a_child_stays_in_the_trace() -> None:
    root = TraceContext.root()
    child = root._replace(flags=0, state="a=b").child()
    assert (child.trace_id, child.flags, child.state) == (root.trace_id, 0, "a=b")
    assert child.span_id != root.span_id
    assert parse(child.traceparent, "a=b") == child


def test_where_a_context_is_looked_for() -> None:
    wanted = TraceContext(TRACE, SPAN, 1)
    made = envelope(traceparent=SAMPLED)
    for place in (made, json.loads(made.detail()), {"detail": json.loads(made.detail())}, {"traceparent": SAMPLED}):
        assert carried(place) == wanted
    assert carried(envelope()) is None
    assert carried(None) is carried("text") is carried({"detail": 3}) is None


# -- the work --------------------------------------------------------------------------------------------------------


def test_the_same_step_in_another_trace_is_the_same_work() -> None:
    made = [
        envelope(),
        envelope(traceparent=SAMPLED, tracestate="a=b"),
        envelope(traceparent=TraceContext.root().traceparent),
    ]
    assert len({Work.of(each, "researcher") for each in made}) == 1
    assert len({Work.of(json.loads(each.detail()), "researcher") for each in made}) == 1
    assert Work.of(envelope(traceparent=SAMPLED), "x") != Work.of(envelope(traceparent=SAMPLED, trace_id="other"), "x")


def test_a_step_that_is_published_again_in_another_trace_gets_its_result_and_no_mismatch(lab: Lab) -> None:
    store = IdempotencyStore.create(lab, "steps")
    assert store.run(Work.of(envelope(traceparent=SAMPLED), "r"), lambda claim: "first") == "first"
    again = envelope(traceparent=TraceContext.root().traceparent, tracestate="a=b")
    assert store.run(Work.of(again, "r"), lambda claim: "second") == "first"


# -- what is current -------------------------------------------------------------------------------------------------


def test_the_next_step_is_caused_by_what_goes_on_now() -> None:
    here = TraceContext.root()._replace(state="a=b")
    first = envelope(traceparent=SAMPLED)
    with trace_context.carrying(here):
        following = first.next(payload={"n": 2})
        assert trace_context.current() == here
    assert carried(following) == here
    assert trace_context.current() is None


def test_where_nobody_traces_the_context_is_passed_on() -> None:
    assert envelope(traceparent=SAMPLED, tracestate="a=b").next(payload={}).traceparent == SAMPLED
    assert envelope(traceparent=SAMPLED, tracestate="a=b").next(payload={}).tracestate == "a=b"
    assert envelope().next(payload={}).traceparent is None
    assert envelope(traceparent=SAMPLED).next(payload={}, traceparent=None).traceparent is None


def test_without_a_context_an_envelope_is_as_it_was() -> None:
    assert "trace" not in envelope().detail().replace("trace_id", "")


def test_it_costs_no_import_of_opentelemetry() -> None:
    script = (
        "import sys; from labkit.control.envelope import Envelope;"
        "Envelope.new(conversation_id='1', step=1, agent_class='a', payload={}).next(payload={});"
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"
