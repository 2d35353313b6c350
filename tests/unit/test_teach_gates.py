"""A human gate in a notebook, its buttons pressed by code: what is recorded and said, and what can be tried again."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from labkit.control.approvals import AlreadyAnswered, ApprovalError, NoSuchRequest, Request, TooLate
from labkit.control.callbacks import NoAnswer
from labkit.teach.gates import gate

ipywidgets = pytest.importorskip("ipywidgets")
HOSTILE = "<script>alert(1)</script>"


def request(id: str = "trip/AskTeam", state: Any = "pending", question: Any = "Go?") -> Request:
    return Request(id, state, "team", question, "arn", "", "", decided_by="Kim", token="a-secret-token")


class Answers:
    """Stands for Approvals: what is asked, and what was answered."""

    def __init__(self, *asked: Request) -> None:
        self.asked, self.taken = list(asked), list[tuple[str, ...]]()
        self.trouble: Exception | None = None

    def pending(self, group: str) -> list[Request]:
        return self.asked

    def decide(self, id: str, decision: Any, by: str, note: str = "") -> Request:
        if self.trouble:
            raise self.trouble
        self.taken.append((id, decision, by))
        return request(id, decision)


def parts(answers: Answers, place: int = 0, by: str = "Kim") -> tuple[Any, Any, Any, Any]:
    """Name field, text, and the two buttons of one line."""
    view = gate(answers, "team", by=by).build()  # type: ignore[arg-type]
    says, approve, reject = view.children[1 + place].children
    return view.children[0], says, approve, reject


@pytest.mark.parametrize("press", [0, 1])
def test_a_button_answers_once_for_its_own_request(press: int) -> None:
    answers = Answers(request("a"), request("b"))
    _, says, *buttons = parts(answers, place=1)
    buttons[press].click()
    state = ("approved", "rejected")[press]
    assert answers.taken == [("b", state, "Kim")]
    assert f"{state} by Kim" in says.value
    assert all(button.disabled for button in buttons)


def test_the_name_is_what_stands_in_the_field_when_it_is_pressed() -> None:
    answers = Answers(request())
    name, _, approve, _ = parts(answers, by="")
    name.value = "  Lee "
    approve.click()
    assert answers.taken == [("trip/AskTeam", "approved", "Lee")]


@pytest.mark.parametrize(
    "trouble",
    [
        ApprovalError("an approver has a name"),
        NoAnswer("Step Functions does not answer"),
        EndpointConnectionError(endpoint_url="http://127.0.0.1:1"),
        ClientError({"Error": {"Code": "ResourceNotFoundException", "Message": "no table"}}, "UpdateItem"),
    ],
)
def test_what_a_second_try_may_cure_can_be_tried_again(trouble: Exception) -> None:
    answers = Answers(request())
    answers.trouble = trouble
    _, says, approve, reject = parts(answers)
    approve.click()
    assert str(trouble).split(":")[0] in says.value
    assert not approve.disabled
    assert not reject.disabled
    answers.trouble = None
    approve.click()
    assert answers.taken == [("trip/AskTeam", "approved", "Kim")]
    assert approve.disabled


@pytest.mark.parametrize(
    "trouble",
    [
        AlreadyAnswered(request(state="rejected")),
        TooLate(request(state="expired")),
        NoSuchRequest("there is no request"),
    ],
)
def test_an_answer_that_stands_ends_the_line(trouble: Exception) -> None:
    answers = Answers(request())
    answers.trouble = trouble
    _, says, approve, reject = parts(answers)
    approve.click()
    assert str(trouble).split(":")[0] in says.value
    assert approve.disabled
    assert reject.disabled


def test_what_is_asked_is_text_and_no_token_shows() -> None:
    answers = Answers(request(question={"do": HOSTILE}), request("b", question=HOSTILE))
    shown = gate(answers, "team", by="Kim")  # type: ignore[arg-type]
    live = "".join(line.children[0].value for line in shown.build().children[1:])
    assert HOSTILE not in live
    assert "&lt;script&gt;" in live
    assert HOSTILE not in shown.static._repr_mimebundle_()["text/html"]
    assert "a-secret-token" not in live + repr(shown)
    assert "Run this cell" in repr(shown)


def test_a_question_that_is_nested_too_deeply_hides_no_other() -> None:
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    answers = Answers(request("deep", question=deep), request("b"))
    parts(answers, place=1)[2].click()
    assert answers.taken == [("b", "approved", "Kim")]


def test_nothing_asked_is_said() -> None:
    view = gate(Answers(), "team").build()  # type: ignore[arg-type]
    assert "Nothing waits for an answer." in view.children[1].value
