from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Optional

import pytest

import gatekeeper_sandbox as gs
from gatekeeper_sandbox import Gatekeeper, Question

from deciding import Decider
from test_sync import eventually_none


def test_a_server_runs_many_commands_at_once(place: Path) -> None:
    with Gatekeeper(profile="read").serve() as server:
        texts: list[str] = []

        def one(number: int) -> None:
            texts.append(server.run(["echo", str(number)], timeout=60).check().text)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(texts, key=int) == [f"{number}\n" for number in range(12)]
        assert server.run("cat; pwd; echo $A", input="text\n", cwd="/", env={"A": "b"}).text == "text\n/\nb\n"
        assert not server.run(["touch", "new"]).ok and not (place / "new").exists()


def test_a_server_streams_and_cancels(place: Path) -> None:
    mark = f"72.{os.getpid()}2"
    with Gatekeeper(profile="read").serve() as server:
        with server.stream("echo first; until [ -e go ]; do sleep 0.02; done; echo last; exit 4") as stream:
            assert next(iter(stream)).text == "first\n"
            (place / "go").touch()
            assert [part.text for part in stream] == ["last\n"]
            assert stream.report().exit_code == 4
        with server.stream(f"echo up; sleep {mark}") as stream:
            next(iter(stream))
        eventually_none(mark)
        assert server.run(["true"]).ok


def test_a_wrong_order_runs_nothing_and_the_server_goes_on() -> None:
    with Gatekeeper().serve() as server:
        with pytest.raises(gs.NoReport, match="raed"):
            server.run(["true"], flags=["--profile", "raed"])
        assert server.run(["true"]).ok


def test_the_end_of_the_server_ends_its_runs() -> None:
    mark = f"73.{os.getpid()}3"
    server = Gatekeeper(profile="read").serve()
    stream = server.stream(f"echo up; sleep {mark}")
    next(iter(stream))
    server.close()
    eventually_none(mark)
    with pytest.raises(gs.ServerGone):
        stream.report()
    with pytest.raises(gs.ServerGone):
        server.run(["true"])


@pytest.mark.parametrize("decision", ["once", "run", "deny", None])
def test_a_callback_decides_for_runs_of_the_server(place: Path, decision: Optional[str]) -> None:
    ask, new = Decider(decision), place / "new"
    with Gatekeeper().serve() as server:
        if decision is None:
            with pytest.raises(ZeroDivisionError):
                server.run(["touch", str(new)], on_ask=ask)
        else:
            report = server.run(["touch", str(new)], on_ask=ask)
            assert report.ok == (decision != "deny")
            assert report.raw["asked"][0]["decision"] == decision
        # Without a callback nothing is asked, and the server goes on.
        assert not server.run(["touch", str(place / "other")]).ok
    assert not (place / "other").exists()
    ask.check(new)


def test_a_stream_of_the_server_asks_while_nobody_reads_it(place: Path) -> None:
    asked = threading.Event()

    def ask(question: Question) -> str:
        asked.set()
        return "run"

    names = [place / name for name in ("one", "two")]
    with Gatekeeper(profile="read").serve() as server:
        with server.stream(f"echo up; for i in {names[0]} {names[1]}; do : > $i; done", on_ask=ask) as stream:
            assert asked.wait(60)
            assert stream.report().ok and all(name.exists() for name in names)


def test_a_run_that_ends_while_its_callback_decides_is_no_error(place: Path) -> None:
    asked, decided = threading.Event(), threading.Event()

    def ask(question: Question) -> str:
        asked.set()
        assert decided.wait(60)
        return "once"

    with Gatekeeper(profile="read").serve() as server:
        with server.stream(["touch", "new"], on_ask=ask):
            assert asked.wait(60)
        decided.set()
        assert server.run(["echo", "next"]).text == "next\n"
    assert not (place / "new").exists()


def test_input_of_the_server_is_text() -> None:
    with Gatekeeper().serve() as server:
        assert server.run(["cat"], input="ä".encode()).text == server.run(["cat"], input="ä").text == "ä"
        with pytest.raises(ValueError, match="UTF-8"):
            server.run(["cat"], input=b"\xff")
        assert Gatekeeper().run(["cat"], input="ä").text == "ä"


def test_a_server_refuses_what_it_could_not_read() -> None:
    with Gatekeeper().serve() as server:
        with pytest.raises(ValueError):
            server.run(["cat", "\udcff"], timeout=60)
        with pytest.raises(ValueError):
            server.run(["true"], timeout=60, env={"A": "\udcff"})
        with pytest.raises(ValueError):
            server.run(["true"], timeout=60, cwd="/\udcff")
        with pytest.raises(ValueError):
            server.run(["cat"], timeout=60, input="x" * (17 << 20))
        assert server.run(["echo", "\\ud800 \U0001f600"]).text == "\\ud800 \U0001f600\n"


def test_an_order_that_the_server_cannot_read_ends_every_run() -> None:
    mark = f"72.{os.getpid()}5"
    with Gatekeeper().serve() as server:
        stream = server.stream(["sleep", mark])
        server._send(b"no order\n")
        with pytest.raises(gs.ServerGone, match="could not read an order.*not JSON"):
            stream.report()
        eventually_none(mark)
        with pytest.raises(gs.ServerGone):
            server.run(["true"])


def test_a_server_reads_and_writes_at_the_same_time() -> None:
    """While one run sends much output, others send much input and are cancelled."""
    until = time.monotonic() + 5
    with Gatekeeper(profile="read").serve() as server:

        def reading() -> None:
            while time.monotonic() < until:
                with server.stream("yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa | head -c 20000000") as stream:
                    for _ in stream:
                        pass

        def cancelling() -> None:
            while time.monotonic() < until:
                stream = server.stream(["true"])
                time.sleep(0.003)
                stream.close()

        def writing() -> None:
            while time.monotonic() < until:
                server.run(["true"], input="x" * 1_000_000)

        works = (reading, cancelling, cancelling, writing, writing)
        threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not any(thread.is_alive() for thread in threads), "the server and its client wait for each other"
