from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

import gatekeeper_sandbox as gs
from gatekeeper_sandbox import AsyncGatekeeper, Question

from test_sync import eventually_none


def test_commands_run_side_by_side() -> None:
    async def main() -> list[str]:
        keeper = AsyncGatekeeper(profile="read")
        reports = await asyncio.gather(*(keeper.run(["cat"], input=f"{n}".encode(), timeout=60) for n in range(8)))
        return [report.check().text for report in reports]

    assert asyncio.run(main()) == [str(number) for number in range(8)]


def test_output_streams_and_the_report_follows(place: Path) -> None:
    async def main() -> None:
        line = "echo first; until [ -e go ]; do sleep 0.02; done; echo last; exit 3"
        async with AsyncGatekeeper(profile="read").stream(line) as stream:
            assert (await stream.__anext__()).text == "first\n"
            (place / "go").touch()
            assert [part.text async for part in stream] == ["last\n"]
            assert (await stream.report()).exit_code == 3

    asyncio.run(main())


def test_cancelling_ends_the_command() -> None:
    mark = f"74.{os.getpid()}4"

    async def main() -> None:
        run = asyncio.ensure_future(AsyncGatekeeper(profile="read").run(f"setsid sleep {mark} & sleep {mark}"))
        await asyncio.sleep(0.5)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run

    asyncio.run(main())
    eventually_none(mark)


def test_a_coroutine_decides(place: Path) -> None:
    async def yes(question: Question) -> str:
        await asyncio.sleep(0)
        return "once" if question.access == "write" else "deny"

    async def broken(question: Question) -> str:
        return "maybe"

    async def main() -> None:
        keeper = AsyncGatekeeper()
        assert (await keeper.run(["touch", str(place / "new")], on_ask=yes)).ok
        with pytest.raises(gs.GatekeeperError, match="maybe"):
            await keeper.run(["touch", str(place / "other")], on_ask=broken)
        async with keeper.serve() as server:
            several = [server.run(["touch", str(place / f"{n}")], on_ask=yes) for n in range(4)]
            assert all(report.ok for report in await asyncio.gather(*several))
            async with server.stream(["touch", str(place / "streamed")], on_ask=yes) as stream:
                assert (await stream.report()).raw["asked"][0]["decision"] == "once"
            with pytest.raises(gs.GatekeeperError, match="maybe"):
                await server.run(["touch", str(place / "other")], on_ask=broken)

    asyncio.run(main())
    assert sorted(path.name for path in place.iterdir()) == ["0", "1", "2", "3", "new", "streamed"]


def test_a_stage_and_a_server_work_too(place: Path) -> None:
    async def main() -> None:
        keeper = AsyncGatekeeper(profile="write")
        (await keeper.run("echo x > added", stage="s")).check()
        stage = keeper.stage("s")
        assert [change.path for change in await stage.diff()] == ["added"] and "+x" in await stage.patch()
        await stage.apply()
        assert (place / "added").read_text() == "x\n"
        async with keeper.serve() as server:
            reports = await asyncio.gather(*(server.run(["echo", str(n)]) for n in range(8)))
            assert [report.text for report in reports] == [f"{n}\n" for n in range(8)]
            async with server.stream("echo a; echo b >&2") as stream:
                assert {(part.stream, part.text) async for part in stream} == {("stdout", "a\n"), ("stderr", "b\n")}
                assert (await stream.report()).ok
            with pytest.raises(gs.NoReport, match="raed"):
                await server.run(["true"], flags=["--profile", "raed"])
        with pytest.raises(gs.ServerGone):
            await server.run(["true"])

    asyncio.run(main())


def test_a_failed_command_runs_again_with_a_grant(place: Path) -> None:
    asked: list[str] = []

    async def yes(denial: gs.Denial) -> bool:
        asked.append(denial.allow_with or "")
        return True

    async def main() -> None:
        new = place / "granted"
        parts: list[gs.Output] = []
        report = await AsyncGatekeeper().run_asking(["sh", "-c", f"echo tried; : > {new}"], yes, on_output=parts.append)
        assert report.ok and new.exists() and len(asked) == 1
        assert "".join(part.text for part in parts).count("tried") == 2

    asyncio.run(main())


def test_a_closed_run_of_the_server_has_ended() -> None:
    mark = f"75.{os.getpid()}5"

    async def main() -> None:
        async with AsyncGatekeeper(profile="read").serve() as server:
            async with server.stream(f"echo up; exec sleep {mark}") as stream:
                assert (await stream.__aiter__().__anext__()).text == "up\n"
            running = [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark.encode() in _read(path)]
            assert not running
            assert (await server.run(["echo", "next"])).text == "next\n"

    asyncio.run(main())


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_cancelling_while_a_coroutine_decides_ends_the_command(place: Path) -> None:
    async def main() -> None:
        asked = asyncio.Event()

        async def never(question: Question) -> str:
            asked.set()
            await asyncio.Event().wait()
            return "once"

        keeper = AsyncGatekeeper()
        async with keeper.serve() as server:
            for run in (keeper.run(["touch", "new"], on_ask=never), server.run(["touch", "new"], on_ask=never)):
                asked.clear()
                task = asyncio.ensure_future(run)
                await asyncio.wait_for(asked.wait(), 60)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            assert (await server.run(["echo", "next"])).text == "next\n"

    asyncio.run(main())
    assert not (place / "new").exists()


def test_an_answer_of_the_server_may_be_long_and_an_order_that_it_cannot_read_ends_every_run() -> None:
    async def main() -> None:
        async with AsyncGatekeeper(profile="read").serve() as server:
            # JSON writes each NUL byte as six bytes.
            other = asyncio.ensure_future(server.run("sleep 1; echo other"))
            report = await server.run(["head", "-c", "12000000", "/dev/zero"], flags=["--output", "20M"])
            assert len(report.text) == 12_000_000 and (await other).text == "other\n"
            with pytest.raises(ValueError):
                await server.run(["cat", "\udcff"], timeout=60)
            with pytest.raises(ValueError):
                await server.run(["cat"], input="x" * (17 << 20), timeout=60)
            late = asyncio.ensure_future(server.run(["sleep", "60"]))
            await asyncio.sleep(0.2)
            await server._send(b"no order\n")
            with pytest.raises(gs.ServerGone, match="could not read an order.*not JSON"):
                await late

    asyncio.run(main())
