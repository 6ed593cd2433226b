from __future__ import annotations

import io
import json
import logging
import re
from typing import Any

import pytest

from relaygen._results import Usage
from relaygen.serve._logs import JsonHandler, Log, now, usage_fields


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_a_line_is_json_with_its_time_first_and_without_what_is_unknown() -> None:
    stream = io.StringIO()
    Log(stream).line("info", "request", route="/v1/größe\nx", status=200, model=None)
    assert stream.getvalue().count("\n") == 1
    (line,) = lines(stream)
    assert list(line) == ["time", "level", "event", "route", "status"]
    assert line["route"] == "/v1/größe\nx"


def test_times_are_utc_with_milliseconds() -> None:
    assert now(0.25) == "1970-01-01T00:00:00.250Z"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", now())


def test_the_standard_error_of_the_moment(capsys: pytest.CaptureFixture[str]) -> None:
    Log().line("info", "request")
    assert json.loads(capsys.readouterr().err)["event"] == "request"


def test_of_an_exception_there_is_all_but_its_text() -> None:
    stream = io.StringIO()
    logger = logging.Logger("test")
    logger.addHandler(JsonHandler(Log(stream)))
    logger.info("not worth a line")
    logger.warning("two\nlines")
    try:
        try:
            raise KeyError("Geheim" + "nis")
        except KeyError as cause:
            raise ValueError("Geheim" + "nis") from cause
    except ValueError:
        logger.exception("Exception in ASGI application\n")
    warned, failed = lines(stream)
    assert (warned["level"], warned["message"]) == ("warning", "two lines")
    assert (failed["level"], failed["exception"]) == ("error", "ValueError")
    first, second = failed["traceback"].split("\n\n")
    assert first.endswith("\nKeyError")
    assert second.endswith("\nValueError")
    assert "test_logs.py" in first
    assert "Geheimnis" not in stream.getvalue()


def test_what_a_generation_leaves_in_the_log() -> None:
    usage = Usage(prompt_tokens=3, handoffs=2, first_token_seconds=0.123456)
    fields = usage_fields(usage)
    assert fields["first_token_seconds"] == 0.1235
    assert (fields["prompt_tokens"], fields["handoffs"], fields["paused"]) == (3, 2, None)
    usage.paused = "why"
    assert usage_fields(usage)["paused"] == "why"
