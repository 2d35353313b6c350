"""Task tokens and the limits of what is sent with them."""

from __future__ import annotations

import contextlib
import threading

import pytest
from parity.states_tokens import MAX_BYTES, Refused, Tokens, check_output, check_size


def code(raised: pytest.ExceptionInfo[Refused]) -> str:
    return raised.value.code


def test_a_token_lives_until_it_is_taken() -> None:
    tokens = Tokens()
    tokens.born("t", "attempt")
    assert tokens.look("t") == tokens.look("t") == tokens.take("t") == "attempt"
    for call in (tokens.look, tokens.take):
        with pytest.raises(Refused) as raised:
            call("t")
        assert code(raised) == "TaskTimedOut"


def test_a_token_ends_with_its_attempt() -> None:
    tokens = Tokens()
    tokens.born("t", "attempt")
    tokens.died("t")
    tokens.died("t")
    with pytest.raises(Refused) as raised:
        tokens.take("t")
    assert code(raised) == "TaskTimedOut"


def test_what_never_was_a_token_is_invalid() -> None:
    tokens = Tokens()
    tokens.died("t")  # nobody knows it
    with pytest.raises(Refused) as raised:
        tokens.take("t")
    assert code(raised) == "InvalidToken"


def test_only_the_last_dead_tokens_are_remembered() -> None:
    tokens = Tokens(remembered=2)
    for token in "abc":
        tokens.born(token, token)
        tokens.died(token)
    codes = []
    for token in "abc":
        with pytest.raises(Refused) as raised:
            tokens.look(token)
        codes.append(code(raised))
    assert codes == ["InvalidToken", "TaskTimedOut", "TaskTimedOut"]


def test_one_of_many_takes_it() -> None:
    tokens = Tokens()
    tokens.born("t", "attempt")
    taken: list[str] = []
    start = threading.Barrier(8)

    def take() -> None:
        start.wait()
        with contextlib.suppress(Refused):
            taken.append(tokens.take("t"))

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert taken == ["attempt"]


@pytest.mark.parametrize("text", ["x" * MAX_BYTES, "é" * (MAX_BYTES // 2)])
def test_the_limit_counts_bytes(text: str) -> None:
    check_size("output", text)
    with pytest.raises(Refused, match="'output' failed to satisfy constraint"):
        check_size("output", f"{text}x")


@pytest.mark.parametrize("output", ["", "{", "text", None])
def test_an_output_is_json(output: str | None) -> None:
    check_output("null")
    with pytest.raises(Refused) as raised:
        check_output(output)
    assert code(raised) == "InvalidOutput"
