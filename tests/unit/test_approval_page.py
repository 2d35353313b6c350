"""The approval page without a browser: what it shows, what it takes, from whom, and how it ends."""

from __future__ import annotations

import http.client
import re
import threading
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest

from labkit.control.approval_page import ApprovalPage
from labkit.control.approvals import ApprovalError, Request

HOSTILE = "\"><script>alert(1)</script>'&"
SECRET = "a-task-token-that-nobody-may-see"


def request(id: str = "trip/AskTeam", question: Any = "Book the trip?") -> Request:
    return Request(id, "pending", "team", question, "arn", "2026-12-01", "2026-12-02", token=SECRET)


class Answers:
    """Stands for Approvals: what is asked, and what was answered."""

    def __init__(self) -> None:
        self.asked = [request()]
        self.taken: list[tuple[str, ...]] = []
        self.trouble: Exception | None = None

    def pending(self, group: str) -> list[Request]:
        if self.trouble:
            raise self.trouble
        return self.asked

    def decide(self, id: str, decision: Any, by: str, note: str = "") -> Request:
        if self.trouble:
            raise self.trouble
        self.taken.append((id, decision, by, note))
        return Request(id, decision, "team", "", "arn", "", "", decided_by=by)


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def page(answers: Answers) -> Iterator[ApprovalPage]:
    with ApprovalPage(answers, "team") as opened:  # type: ignore[arg-type]
        yield opened


def call(page: ApprovalPage, method: str, path: str | None = None, form: Any = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(page.host, timeout=60)
    try:
        body = urllib.parse.urlencode(form) if isinstance(form, dict) else form
        sent = {"Content-Type": "application/x-www-form-urlencoded"} if form is not None else {}
        connection.request(method, page.path if path is None else path, body, {**sent, **headers})
        answer = connection.getresponse()
        return answer.status, (answer.read().decode(), dict(answer.getheaders()))
    finally:
        connection.close()


FORM = {"id": "trip/AskTeam", "decision": "approved", "by": " Kim ", "note": "ế"}


def test_an_answer_is_taken_once_and_the_redirect_says_so_once(page: ApprovalPage, answers: Answers) -> None:
    status, (_, headers) = call(page, "POST", form=FORM)
    assert status == 303
    assert answers.taken == [("trip/AskTeam", "approved", "Kim", "ế")]
    first = call(page, "GET", headers["Location"])[1][0]
    assert 'role="status">Request trip/AskTeam is approved by Kim.' in first
    assert 'role="status"' not in call(page, "GET", headers["Location"])[1][0]
    assert len(answers.taken) == 1


def test_what_is_asked_is_text_and_the_token_is_not_there(page: ApprovalPage, answers: Answers) -> None:
    answers.asked = [request(id=HOSTILE, question=HOSTILE), request(question={HOSTILE: [HOSTILE]})]
    text = call(page, "GET")[1][0]
    assert "<script" not in text
    assert text.count("&lt;script&gt;") == 5
    assert SECRET not in text + repr(page) + repr(answers.asked)


def test_every_field_has_a_label_and_every_request_a_heading(page: ApprovalPage, answers: Answers) -> None:
    answers.asked = [request(), request("other/AskTeam")]
    text = call(page, "GET")[1][0]
    assert len(re.findall(r"<label>[^<]+<input", text)) == text.count("<input") - text.count('type="hidden"') == 4
    assert len(set(re.findall(r'aria-labelledby="(\w+)"', text))) == 2
    assert '<html lang="en">' in text


def test_a_refusal_is_shown_and_a_table_that_does_not_answer_is_no_crash(page: ApprovalPage, answers: Answers) -> None:
    answers.trouble = ApprovalError("request trip was rejected by Lee already <b>.")
    status, (_, headers) = call(page, "POST", form=FORM)
    assert status == 303
    status, (text, _) = call(page, "GET")
    assert status == 503
    answers.trouble = None
    assert "already &lt;b&gt;." in call(page, "GET", headers["Location"])[1][0]
    assert "<b>" not in text


@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {}, 404),
        ("POST", "/", {}, 404),
        ("GET", "/%FF/", {}, 404),
        ("GET", None, {"Host": "attacker.example"}, 404),
        ("POST", None, {"Host": "attacker.example"}, 404),
        ("POST", None, {"Origin": "http://attacker.example"}, 403),
        ("POST", None, {"Origin": "null"}, 403),
        ("POST", None, {"Content-Length": "9999999"}, 413),
        ("POST", None, {"Content-Length": "-1"}, 413),
        ("POST", None, {"Content-Length": "many"}, 413),
        ("PUT", None, {}, 501),
    ],
)
def test_strangers_are_refused(
    page: ApprovalPage, answers: Answers, method: str, path: str | None, headers: dict[str, str], status: int
) -> None:
    form = FORM if method == "POST" else None
    assert call(page, method, path, form, **headers)[0] == status
    assert answers.taken == []


def test_a_form_of_too_many_fields_is_refused(page: ApprovalPage, answers: Answers) -> None:
    assert call(page, "POST", form={**FORM, **{f"field-{n}": "x" for n in range(50)}})[0] == 413
    assert answers.taken == []


def test_headers_keep_the_page_to_itself(page: ApprovalPage) -> None:
    _, (_, headers) = call(page, "GET")
    assert headers["Cache-Control"] == "no-store"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert page.host.startswith("127.0.0.1:")
    assert len(page.path) > 30


def test_a_question_that_is_nested_too_deeply_hides_no_other(page: ApprovalPage, answers: Answers) -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    answers.asked = [request("deep", deep), request("other", "Book it?")]
    shown = page.shown()
    assert "nested too deeply" in shown
    assert "Book it?" in shown


def test_each_page_has_a_path_of_its_own(answers: Answers) -> None:
    with ApprovalPage(answers, "team") as one, ApprovalPage(answers, "team") as other:  # type: ignore[arg-type]
        assert one.path != other.path
        assert one.path not in repr(one)


def test_it_ends_with_a_slow_client_still_there(page: ApprovalPage) -> None:
    connection = http.client.HTTPConnection(page.host, timeout=60)
    connection.connect()  # and says nothing
    try:
        for _ in range(2):
            page.stop()
        assert [thread for thread in threading.enumerate() if thread.name == "labkit-approval-page"] == []
        with pytest.raises(OSError, match="refused"):
            call(page, "GET")
    finally:
        connection.close()
