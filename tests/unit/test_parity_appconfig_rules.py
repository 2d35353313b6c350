"""AppConfig's rules: tokens, pages, versions, what is not deleted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity.appconfig_deletions import PERIOD, check_empty, check_unread
from parity.appconfig_lists import labelled, page
from parity.appconfig_requests import Refused, answered
from parity.appconfig_sessions import MAX_AGE, Tokens
from parity.appconfig_versions import check_label, check_lock, resolved


def problem(tokens: Tokens, token: str, now: float) -> str:
    """What is wrong with using a token now; "" when nothing is."""
    try:
        tokens.check(token, now)
    except Refused as error:
        return str(error.more["Details"]["InvalidParameters"]["ConfigurationToken"]["Problem"])
    return ""


@pytest.mark.parametrize(
    ("after", "says"),
    [
        (0, "PollIntervalNotSatisfied"),
        (14.9, "PollIntervalNotSatisfied"),
        (15, ""),
        (MAX_AGE, ""),
        (MAX_AGE + 1, "Expired"),
        (3 * MAX_AGE, "Expired"),
    ],
)
def test_a_token_has_its_time(after: float, says: str) -> None:
    tokens = Tokens()
    tokens.give("a", 100.0, 15.0)
    assert problem(tokens, "a", 100.0 + after) == says


def test_a_refusal_has_the_form_of_the_model() -> None:
    with pytest.raises(Refused, match="Token not valid") as raised:
        Tokens().check("a", 0.0)
    assert (raised.value.code, raised.value.body["Reason"]) == ("BadRequestException", "InvalidParameters")


def test_a_token_is_used_once_and_the_old_ones_are_forgotten() -> None:
    tokens = Tokens()
    tokens.give("a", 0.0)
    assert problem(tokens, "a", 0.0) == ""
    tokens.spend("a")
    tokens.spend("a")
    assert problem(tokens, "a", 0.0) == problem(tokens, "never", 0.0) == "Corrupted"
    for number in range(5):
        tokens.give(f"t{number}", number * MAX_AGE)
    assert list(tokens._given) == ["t2", "t3", "t4"]


def items(count: int) -> list[dict[str, Any]]:
    return [{"VersionNumber": number} for number in range(1, count + 1)]


@given(st.integers(0, 130), st.integers(1, 50))
def test_pages_are_the_list(count: int, size: int) -> None:
    found: list[Any] = []
    query = {"max_results": str(size)}
    while True:
        answer = page(items(count), query)
        assert len(answer["Items"]) <= size
        found += answer["Items"]
        if "NextToken" not in answer:
            break
        query = {**query, "next_token": answer["NextToken"]}
    assert found == items(count)


def test_a_page_goes_on_where_the_last_one_ended() -> None:
    first = page(items(5), {"max_results": "2"})
    token = {"max_results": "2", "next_token": first["NextToken"]}
    assert page([{"VersionNumber": 0}, *items(5)], token)["Items"] == items(5)[2:4]
    assert page(items(5)[2:], token)["Items"] == items(5)[3:5]  # what it ended with is gone, and another one before it
    assert page(items(5)[:1], token)["Items"] == []


@pytest.mark.parametrize("query", [{"max_results": "0"}, {"max_results": "51"}, {"max_results": "x"}])
def test_a_page_has_bounds(query: dict[str, str]) -> None:
    with pytest.raises(Refused):
        page(items(3), query)


@pytest.mark.parametrize("token", ["x", "bnVsbA==", "WzFd", "eyJhIjogMX0=", "é"])
def test_a_token_of_a_page_is_one_that_was_given(token: str) -> None:
    with pytest.raises(Refused, match="NextToken"):
        page(items(3), {"next_token": token})


def test_versions_are_found_by_label() -> None:
    versions: list[dict[str, Any]] = [
        {"VersionNumber": 1},
        {"VersionNumber": 2, "VersionLabel": "v2"},
        {"VersionNumber": 3, "VersionLabel": "v2.1"},
        {"VersionNumber": 4, "VersionLabel": "v2.1"},
    ]
    assert [each["VersionNumber"] for each in labelled(versions, "v2")] == [2]
    assert [each["VersionNumber"] for each in labelled(versions, "v2*")] == [2, 3, 4]
    assert labelled(versions, "*") == versions[1:]
    assert labelled(versions, None) == versions
    assert [resolved(name, versions) for name in ("1", "v2", "v2.1")] == ["1", "2", "4"]
    for unknown in ("5", "v3", ""):
        with pytest.raises(Refused):
            resolved(unknown, versions)


def test_labels_and_locks() -> None:
    for good in (None, "v1", "v" * 64, "1.0"):
        check_label(good)
    for bad in ("", "12", "v" * 65):
        with pytest.raises(Refused):
            check_label(bad)
    check_lock(None, 3)
    check_lock("3", 3)
    for wrong in ("2", "4", "x"):
        with pytest.raises(Refused) as refused:
            check_lock(wrong, 3)
        assert refused.value.code == "ConflictException"


def test_what_is_not_deleted() -> None:
    check_empty("application", "a", {"environments": [], "configuration profiles": iter(())})
    with pytest.raises(Refused, match="Cannot delete application a because there are still environments existing"):
        check_empty("application", "a", {"environments": ["e"]})
    for check, read in (("BYPASS", 0.0), (None, 0.0), ("ACCOUNT_DEFAULT", 0.0), ("APPLY", None), ("APPLY", -PERIOD)):
        check_unread("environment", "e", check, read, 0.0)
    with pytest.raises(Refused):
        check_unread("environment", "e", "APPLY", 1.0 - PERIOD, 0.0)


def test_a_refusal_is_an_answer() -> None:
    def refuse(text: str) -> Any:
        raise Refused("ConflictException", text, Reason="because")

    status, headers, body = answered(refuse)("no")
    assert (status, headers["x-amzn-errortype"]) == (409, "ConflictException")
    assert body == b'{"__type": "ConflictException", "Message": "no", "Reason": "because"}'
