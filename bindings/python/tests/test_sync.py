from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path
from typing import Optional

import pytest

import gatekeeper_sandbox as gs
from gatekeeper_sandbox import Gatekeeper
from gatekeeper_sandbox._invocation import How

from deciding import Decider


def processes_with(mark: str) -> int:
    return int(subprocess.run(["pgrep", "-c", "-f", f"sleep {mark}"], capture_output=True, text=True).stdout)


def eventually_none(mark: str) -> None:
    until = time.monotonic() + 60
    while processes_with(mark):
        assert time.monotonic() < until, "the command still runs"
        time.sleep(0.05)


def test_a_command_is_run_and_reported() -> None:
    report = Gatekeeper().run(["echo", "one word", "$HOME"], timeout=30).check()
    assert (report.ok, report.ran, report.text, report.outcome) == (True, True, "one word $HOME\n", "exited")
    assert {"seccomp", "landlock"} <= {layer.layer for layer in report.layers if layer.status == "enforced"}


def test_what_is_denied_is_named_with_its_grant(place: Path) -> None:
    keeper = Gatekeeper()
    report = keeper.run(["touch", "new"])
    assert not report.ok and not (place / "new").exists()
    assert report.denials[0].grant == ["--write", os.path.realpath(place)]
    with pytest.raises(gs.CommandFailed, match="denied: openat"):
        report.check()
    assert keeper.run(["touch", "new"], flags=report.denials[0].grant).ok and (place / "new").exists()


def test_input_and_output_may_be_large_and_need_not_be_text() -> None:
    keeper = Gatekeeper()
    assert keeper.run(["wc", "-c"], input=b"x" * 300000).text == "300000\n"
    assert keeper.run(["true"], input=b"x" * 300000).ok
    assert keeper.run(["cat"], input=b"\xff\x00\n").stdout == b"\xff\x00\n"
    assert keeper.run(["printf", ""]).stdout == b""


def test_each_outcome_has_its_exception() -> None:
    keeper = Gatekeeper(profile="read")
    cases = [
        (keeper.run(["no-such-program"]), gs.CommandNotFound),
        (keeper.run("kill -TERM $$"), gs.CommandKilled),
        (keeper.run("sleep 60", timeout=0.2), gs.TimedOut),
        (keeper.run(["/etc/hostname"]), gs.NotRun),
    ]
    for report, error in cases:
        with pytest.raises(error) as raised:
            report.check()
        assert raised.value.report is report and isinstance(raised.value, gs.GatekeeperError)


def test_wrong_flags_run_nothing_and_are_named() -> None:
    with pytest.raises(gs.NoReport, match="wriet"):
        Gatekeeper(profile="wriet").run(["true"])


def test_a_line_or_a_value_is_never_a_flag(place: Path) -> None:
    report = Gatekeeper().run("--profile=write -c touch\\ new")
    assert not report.ok and not (place / "new").exists()
    with pytest.raises(gs.NoReport):
        Gatekeeper(net="--profile=write").run(["true"])


def test_a_missing_program_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEKEEPER", "/nonexistent/gatekeeper")
    with pytest.raises(gs.ProgramMissing, match="nonexistent"):
        Gatekeeper()


def test_variables_are_set_and_secrets_are_not_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOT_PASSED", "1")
    keeper = Gatekeeper(profile="read")
    line = 'echo "$TOKEN-${NOT_PASSED-unset}-$HOME"; tr "\\0" " " < /proc/$PPID/cmdline'
    report = keeper.run(line, env={"TOKEN": "s3cret", "HOME": "/elsewhere"})
    assert report.text.startswith("s3cret-unset-/elsewhere\n")
    words = keeper._invocation(["true"], How((), None, b"", None, {"TOKEN": "s3cret"}, None), captures=True)._before
    assert not any("s3cret" in word for word in words)
    long = {f"LONG_{number}": "x" * 100_000 for number in range(4)}
    assert keeper.run("echo $LONG_3 | wc -c", env=long).text == "100001\n"
    for wrong in ({"A=B": "c"}, {"A": "\udcff"}, {"A": "b\0"}):
        with pytest.raises(ValueError):
            keeper.run(["true"], env=wrong)


def test_variables_of_the_command_do_not_change_what_is_protected(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = place / "cluster"
    named.write_text("secret\n")
    assert Gatekeeper().run(["cat", str(named)]).text == "secret\n"
    monkeypatch.setenv("KUBECONFIG", str(named))
    others: list[dict[str, str]] = [{}, {"KUBECONFIG": "/dev/null"}]
    for env in others:
        report = Gatekeeper().run(["cat", str(named)], env=env)
        assert (report.exit_code, report.text) == (1, ""), env
        assert report.denials[0].path == str(named)
    assert Gatekeeper(profile="read").run("echo $KUBECONFIG", env={"KUBECONFIG": "/dev/null"}).text == "/dev/null\n"


def test_output_streams_while_the_command_runs(place: Path) -> None:
    line = "echo first; until [ -e go ]; do sleep 0.02; done; echo last >&2; exit 3"
    with Gatekeeper(profile="read").stream(line, timeout=60) as stream:
        first = next(iter(stream))
        assert (first.stream, first.text) == ("stdout", "first\n")
        (place / "go").touch()
        assert [(part.stream, part.text) for part in stream] == [("stderr", "last\n")]
        assert stream.report().exit_code == 3


def test_a_stream_that_is_left_ends_the_command() -> None:
    mark = f"71.{os.getpid()}1"
    with Gatekeeper(profile="read").stream(f"echo up; setsid sleep {mark} & sleep {mark}") as stream:
        next(iter(stream))
    eventually_none(mark)
    seen: list[bytes] = []

    def stop(output: gs.Output) -> None:
        seen.append(output.data)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Gatekeeper(profile="read").run(f"echo up; sleep {mark}", on_output=stop)
    eventually_none(mark)
    assert seen == [b"up\n"]


@pytest.mark.parametrize("decision", ["once", "run", "deny", None])
def test_a_callback_decides_while_the_call_waits(place: Path, decision: Optional[str]) -> None:
    ask, new = Decider(decision), place / "new"
    if decision is None:
        with pytest.raises(ZeroDivisionError):
            Gatekeeper().run(["touch", str(new)], on_ask=ask)
    else:
        report = Gatekeeper().run(["touch", str(new)], on_ask=ask)
        assert report.ok == (decision != "deny")
        assert report.raw["asked"][0]["decision"] == decision
    ask.check(new)


def test_a_refused_command_runs_again_after_a_yes(place: Path) -> None:
    keeper = Gatekeeper()
    assert not keeper.run_asking(["touch", "new"], lambda denial: False).ok
    assert keeper.run_asking(["touch", "new"], lambda denial: denial.syscall == "openat").ok
    assert (place / "new").exists()


def test_changes_wait_in_a_stage(place: Path) -> None:
    keeper = Gatekeeper(profile="write")
    (place / "notes").write_text("one\n")
    keeper.run("echo two >> notes; echo x > added", stage="s").check()
    stage = keeper.stage("s")
    assert (place / "notes").read_text() == "one\n"
    assert [(change.path, change.change) for change in stage.diff()] == [("added", "added"), ("notes", "modified")]
    assert "+two\n" in stage.patch()
    stage.apply(["notes"])
    assert (place / "notes").read_text() == "one\ntwo\n" and not (place / "added").exists()
    keeper.run("echo three >> notes", stage="s").check()
    (place / "notes").write_text("changed meanwhile\n")
    with pytest.raises(gs.StageConflict, match="notes"):
        stage.apply()
    stage.discard()
    with pytest.raises(gs.StageError):
        stage.diff()
    assert (place / "notes").read_text() == "changed meanwhile\n"
