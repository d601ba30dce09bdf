from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

import gatekeeper_sandbox as gs
from gatekeeper_sandbox import Gatekeeper

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
