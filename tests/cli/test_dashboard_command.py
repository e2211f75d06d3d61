"""`themis dashboard`: finished runs in a browser, or the way to the service's own pages."""

import json
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

Cli = Callable[..., Any]


def test_missing_path_or_non_run_is_reported_in_one_line(cli: Cli, tmp_path: Path) -> None:
    gone = cli("dashboard", tmp_path / "gone")
    assert (gone.code, gone.err.count("\n")) == (3, 1)
    other = cli("dashboard", tmp_path)
    assert (other.code, other.err.count("\n")) == (2, 1)
    assert "themis sim run --out" in other.err
    text = tmp_path / "notes.txt"
    text.write_text("hello\n")
    assert cli("dashboard", text).code == 2


def test_without_a_run_dashboard_opens_the_service_pages(cli: Cli, canned: Any) -> None:
    canned.answers = {"POST /v1/login-links": {"path": "/login/code"}}
    done = cli("dashboard")
    assert done.code == 0
    assert done.out.strip().endswith("/login/code")
    assert json.loads(cli("dashboard", "--json").out)["url"].endswith("/login/code")


def test_a_log_is_served_until_interrupted(recorded_log: Path) -> None:
    command = [sys.executable, "-m", "themis", "dashboard", str(recorded_log), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
            with opener.open(told["url"], timeout=120) as page:
                assert b"Themis" in page.read()
            base = told["url"].partition("/?")[0]
            with opener.open(f"{base}/v1/board", timeout=120) as answer:
                board = json.load(answer)
            assert board["origin"]["kind"] == "log"
            assert len(board["apps"]) == 2
            process.send_signal(signal.SIGINT)
            assert process.wait(120) == 130
        finally:
            process.kill()
