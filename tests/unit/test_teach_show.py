"""What notebooks print is the same on each run, on stdout, and says when nothing failed."""

from __future__ import annotations

import dataclasses

import pytest
from botocore.exceptions import ClientError
from pydantic import BaseModel

from labkit.errors import LabError
from labkit.models.queue_life import live
from labkit.teach import show


def test_a_table_aligns_numbers_right_and_escapes_html() -> None:
    table = show.table([{"name": "a<b", "size": 1234, "share": 0.123456, "ok": True}, {"name": "c", "size": None}])
    assert repr(table).splitlines() == [
        "name   size   share  ok",
        "----  -----  ------  ---",
        "a<b   1,234  0.1235  yes",
        "c         –       –  –",
    ]
    html = table._repr_mimebundle_()["text/html"]
    assert "a&lt;b" in html
    assert 'style="text-align: right">1,234' in html
    assert '<th scope="col"' in html
    assert "id=" not in html


def test_a_table_takes_dataclasses_sequences_and_new_names() -> None:
    @dataclasses.dataclass
    class Row:
        step: int
        agent_class: str

    assert show.table([Row(1, "coder")]).headers == ["step", "agent class"]
    assert show.table([Row(1, "coder")], {"agent_class": "who"}).cells == [["coder"]]
    assert show.table([(1, 2.0)], ["a", "b"]).cells == [["1", "2"]]
    assert repr(show.table([], ["a", "b"], caption="Nothing yet")).splitlines() == ["Nothing yet", "a  b", "-  -"]
    assert show.table(live(visibility=30, step=3).rows()).cells[0][-1] == "deleted"
    with pytest.raises(ValueError, match="as many headers"):
        show.table([(1, 2)], ["a"])


def test_counts_are_sorted() -> None:
    assert show.counts(["b", "a", "b"]).cells == [["a", "1"], ["b", "2"]]
    assert show.counts({3: 1, "x": 2}, "step", "runs").headers == ["step", "runs"]


def test_client_errors_show_call_code_and_message(capsys: pytest.CaptureFixture[str]) -> None:
    url = "http://127.0.0.1:4566/123456789012/work"
    with show.error() as shown:
        raise ClientError({"Error": {"Code": "QueueDoesNotExist", "Message": f"No {url}"}}, "SendMessage")
    assert capsys.readouterr() == ("SendMessage: QueueDoesNotExist\n  No http://«host»/«account»/work\n", "")
    assert isinstance(shown.raised, ClientError)
    assert "QueueDoesNotExist" in repr(shown)


def test_other_errors_and_none(capsys: pytest.CaptureFixture[str]) -> None:
    class Envelope(BaseModel):
        step: int

    show.error(lambda: Envelope(step="x"))
    show.error(lambda: live(visibility=-1, step=1))
    show.error(lambda: None)
    out, err = capsys.readouterr()
    assert "ValidationError: Envelope\n  step: Input should be a valid integer" in out
    assert "ModelError\n  visibility must be from 0 to 43200 s; got -1." in out
    assert out.endswith("Nothing failed, and this cell expects an error.\n")
    assert err == ""
    with pytest.raises(KeyboardInterrupt), show.error():
        raise KeyboardInterrupt
    assert show.describe(LabError("one sentence.")) == "LabError\n  one sentence."


def test_json_hides_what_changes() -> None:
    message = {
        "MessageId": "6c4a1c1e-0b7f-4f0e-9d1a-3b2c5e6f7a8b", "ReceiptHandle": "AQEB",
        "Body": '{"at": "2026-11-11T09:15:22Z"}',
        "ResponseMetadata": {"RequestId": "x"}, "Attributes": {"SentTimestamp": "1", "ApproximateReceiveCount": "2"},
        "tags": {"b", "a"}, "blob": b"12",
    }  # fmt: skip
    text = repr(show.json_block(message))
    assert '"MessageId": "«id»"' in text
    assert '"ReceiptHandle": "«handle»"' in text
    assert "«time»" in text
    assert '"ApproximateReceiveCount": "2"' in text
    assert "ResponseMetadata" not in text
    assert text.index('"a"') < text.index('"b"')
    assert "«2 bytes»" in text
    assert '"step": "«…»"' in repr(show.event({"step": 3}, hide=["step"]))
    assert '"id": "mine"' in repr(show.event({"id": "mine"}, keep=["id"]))
    assert show.event({})._repr_mimebundle_()["text/markdown"].startswith("```json\n")


def test_progress_prints_one_line_and_nothing_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(show.progress([1, 2], "runs")) == [1, 2]
    for item in show.progress(range(10), "stopped"):
        if item == 3:
            break
    list(show.progress(iter("abc"), "unknown"))
    assert capsys.readouterr() == ("runs: 2 of 2\nstopped: 3 of 10\nunknown: 3\n", "")


def test_a_bar_has_a_fixed_width() -> None:
    assert show._bar("x", 1, 2) == f"x: {'█' * 12}{'░' * 12} 1 of 2"
    assert show._bar("x", 5, None) == "x: 5"


def test_a_diagram_says_what_it_draws() -> None:
    shown = show.mermaid("graph LR\n  a --> b\n", "a leads to b.")
    assert repr(shown) == "a leads to b."
    assert shown._repr_mimebundle_()["text/markdown"] == "```mermaid\ngraph LR\n  a --> b\n```\n\na leads to b."
