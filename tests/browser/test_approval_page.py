"""The approval page in a real browser: answers, double answers, hostile texts, going back, two tabs, no JavaScript."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from labkit import Lab
from labkit.control.approval_page import ApprovalPage
from labkit.control.approvals import Approvals
from labkit.control.machines import Execution, Machine

GROUP = "team"
HOSTILE = '<img src=x onerror="document.title=1"></pre><script>document.title="owned"</script> & "quoted" \u202e'
GATE = {
    "QueryLanguage": "JSONata",
    "StartAt": "Gate",
    "States": {
        "Gate": {
            "Type": "Task",
            "Resource": "arn:aws:states:::aws-sdk:dynamodb:putItem.waitForTaskToken",
            "Arguments": {
                "TableName": "${Table}",
                "Item": {
                    "pk": {"S": "{% $states.context.Execution.Name & '/Gate' %}"},
                    "gate_state": {"S": "pending"},
                    "asked_of": {"S": GROUP},
                    "open_in": {"S": GROUP},
                    "asked_at": {"S": "{% $now() %}"},
                    "answer_until": {"S": "{% $fromMillis($millis() + 300000) %}"},
                    "question": {"S": "{% $string({'asked': $states.input.question}) %}"},
                    "execution": {"S": "{% $states.context.Execution.Id %}"},
                    "task_token": {"S": "{% $states.context.Task.Token %}"},
                },
            },
            "TimeoutSeconds": 300,
            "End": True,
        }
    },
}


class Gates:
    """Executions that wait at a gate, and the page that answers them."""

    def __init__(self, lab: Lab) -> None:
        self.approvals = Approvals.create(lab, "approvals")
        self.machine = Machine.create(lab, "gate", GATE, values={"Table": self.approvals.table})
        self.page = ApprovalPage(self.approvals, GROUP, lab=lab)
        self.tokens: list[str] = []

    def ask(self, question: Any, name: str) -> Execution:
        before = len(self.approvals.pending(GROUP))
        started = self.machine.start({"question": question}, name=name)
        end = time.monotonic() + 60
        while len(self.approvals.pending(GROUP)) <= before:
            assert time.monotonic() < end, "the gate has not asked"
            time.sleep(0.05)
        item = self.approvals.client.get_item(TableName=self.approvals.table, Key={"pk": {"S": f"{name}/Gate"}})["Item"]
        self.tokens.append(item["task_token"]["S"])
        return started


@pytest.fixture
def gates(lab: Lab) -> Iterator[Gates]:
    made = Gates(lab)
    yield made
    made.page.stop()


def answer(page: Any, name: str, button: str, by: str = "Kim", note: str = "") -> None:
    article = page.get_by_role("article", name=f"{name}/Gate")
    article.get_by_label("Your name").fill(by)
    article.get_by_label("Note (optional)").fill(note)
    article.get_by_role("button", name=button).click()


def result(execution: Execution) -> Any:
    return execution.wait(60).output


@pytest.mark.parametrize(("button", "approved"), [("Approve", True), ("Reject", False)])
def test_an_answer_reaches_the_state_machine(gates: Gates, context: Any, button: str, approved: bool) -> None:
    execution = gates.ask("Book the room?", "trip")
    page = context.new_page()
    page.goto(gates.page.url)
    assert page.get_by_text("Book the room?").is_visible()
    answer(page, "trip", button, note="as agreed")
    assert f"is {'approved' if approved else 'rejected'} by Kim" in page.get_by_role("status").inner_text()
    page.get_by_text("Nothing waits for an answer.").wait_for()
    told = result(execution)
    assert (told["approved"], told["by"], told["note"]) == (approved, "Kim", "as agreed")


def test_a_double_click_is_one_answer(gates: Gates, context: Any) -> None:
    execution = gates.ask("Book the room?", "trip")
    page = context.new_page()
    page.goto(gates.page.url)
    page.get_by_label("Your name").fill("Kim")
    page.get_by_role("button", name="Approve").dblclick()
    page.get_by_role("status").wait_for()
    assert "is approved by Kim" in page.get_by_role("status").inner_text()
    assert result(execution)["approved"] is True


def test_going_back_and_answering_otherwise_shows_the_answer_that_stands(gates: Gates, context: Any) -> None:
    execution = gates.ask("Book the room?", "trip")
    gates.ask("And the flight?", "other")
    page = context.new_page()
    page.goto(gates.page.url)
    answer(page, "trip", "Approve")
    page.get_by_role("status").wait_for()
    page.go_back()
    if page.get_by_role("article", name="trip/Gate").count():  # as the browser kept it
        answer(page, "trip", "Reject")
        assert "was approved by Kim already" in page.get_by_role("status").inner_text()
    page.reload()
    assert page.get_by_role("article").count() == 1
    assert result(execution)["approved"] is True


def test_of_two_tabs_the_first_answer_stands(gates: Gates, context: Any) -> None:
    execution = gates.ask("Book the room?", "trip")
    first, second = context.new_page(), context.new_page()
    for page in (first, second):
        page.goto(gates.page.url)
    answer(first, "trip", "Reject", by="Kim")
    first.get_by_role("status").wait_for()
    answer(second, "trip", "Approve", by="Lee")
    assert "was rejected by Kim already" in second.get_by_role("status").inner_text()
    assert result(execution)["approved"] is False


@pytest.mark.parametrize("question", [HOSTILE, {"html": HOSTILE}], ids=["text", "object"])
def test_a_hostile_text_is_shown_as_text(gates: Gates, context: Any, question: Any) -> None:
    gates.ask(question, "trip")
    page = context.new_page()
    alarms: list[Any] = []
    page.on("dialog", lambda dialog: alarms.append(dialog))
    page.goto(gates.page.url)
    assert page.title() == "Approvals for team"
    assert page.locator("script, img").count() == 0
    assert "<script>" in page.locator("article pre").inner_text()
    answer(page, "trip", "Reject", by=HOSTILE[:60], note=HOSTILE)
    page.get_by_role("status").wait_for()
    assert page.locator("script, img").count() == 0
    assert alarms == []


def test_no_token_is_in_a_page(gates: Gates, context: Any) -> None:
    gates.ask("Book the room?", "trip")
    page = context.new_page()
    page.goto(gates.page.url)
    assert len(gates.tokens[0]) > 20
    assert gates.tokens[0] not in page.content()


def test_it_works_without_javascript_and_with_the_keyboard_alone(gates: Gates, browser: Any) -> None:
    execution = gates.ask("Book the room?", "trip")
    context = browser.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(gates.page.url)
        page.keyboard.press("Tab")
        page.keyboard.type("Kim")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.get_by_role("status").wait_for()
    finally:
        context.close()
    assert result(execution)["by"] == "Kim"


def test_an_answer_after_the_end_is_too_late(gates: Gates, context: Any) -> None:
    execution = gates.ask("Book the room?", "trip")
    page = context.new_page()
    page.goto(gates.page.url)
    execution.stop()
    answer(page, "trip", "Approve")
    assert "has expired: the workflow has gone on without an answer" in page.get_by_role("status").inner_text()


def test_light_and_dark_are_both_readable(gates: Gates, browser: Any, tmp_path: Any) -> None:
    gates.ask(json.dumps({"room": 3}), "trip")
    shades = {}
    for scheme in ("light", "dark"):
        context = browser.new_context(color_scheme=scheme)
        try:
            page = context.new_page()
            page.goto(gates.page.url)
            page.screenshot(path=str(tmp_path / f"{scheme}.png"))
            shades[scheme] = page.evaluate("getComputedStyle(document.body).color")
        finally:
            context.close()
    assert shades["light"] == "rgb(0, 0, 0)"
    assert shades["dark"] == "rgb(255, 255, 255)"


def test_a_foreign_page_cannot_answer(gates: Gates, context: Any) -> None:
    execution = gates.ask("Book the room?", "trip")
    page = context.new_page()
    page.goto("about:blank")
    page.set_content(
        f'<form method="post" action="{gates.page.url}"><input name="id" value="trip/Gate">'
        '<input name="by" value="Eve"><button name="decision" value="approved">Win</button></form>'
    )
    page.get_by_role("button", name="Win").click()
    page.get_by_text("Answers are taken from the page itself.").wait_for()
    assert gates.approvals.look("trip/Gate").state == "pending"
    execution.stop()


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {}, 404),
        ("/approvals/", {}, 404),
        (None, {"Host": "attacker.example"}, 404),
        (None, {"Origin": "http://attacker.example"}, 403),
        (None, {"Origin": "null"}, 403),
        (None, {"Content-Length": "999999"}, 413),
    ],
)
def test_what_does_not_come_from_the_page_is_refused(gates: Gates, path: Any, headers: Any, status: int) -> None:
    where = gates.page.url if path is None else f"http://{gates.page.host}{path}"
    request = urllib.request.Request(where, data=b"id=x", headers=headers, method="POST")
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=60)
    assert refused.value.code == status


def test_stopping_leaves_nothing(gates: Gates) -> None:
    url = gates.page.url
    gates.page.stop()
    gates.page.stop()
    assert [thread.name for thread in threading.enumerate() if "approval" in thread.name] == []
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(url, timeout=60)
    assert gates.page.path not in repr(gates.page)
