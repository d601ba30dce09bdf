"""Puts the static gatekeeper program into the wheel, and gives the wheel the tag of the program's machine.

The variable GATEKEEPER names the program; the default is what `make` builds. A program that needs a loader is refused: the tags say that
the wheel runs with every C library, which would then be untrue."""

from __future__ import annotations

import os
import struct
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MACHINES = {62: "x86_64", 183: "aarch64"}
PT_INTERP = 3


def machine(program: str) -> str:
    """The machine of a static 64-bit ELF program."""
    with open(program, "rb") as file:
        header = file.read(64)
        if len(header) < 64 or header[:6] != b"\x7fELF\x02\x01":
            raise SystemExit(f"{program}: not a 64-bit little-endian ELF file")
        number = struct.unpack_from("<H", header, 18)[0]
        offset, size, count = struct.unpack_from("<Q", header, 32)[0], *struct.unpack_from("<HH", header, 54)
        file.seek(offset)
        segments = file.read(size * count)
    if any(struct.unpack_from("<I", segments, at)[0] == PT_INTERP for at in range(0, size * count, size)):
        raise SystemExit(f"{program}: needs a dynamic loader; build it with `make`, which links statically")
    if number not in MACHINES:
        raise SystemExit(f"{program}: for machine {number}, for which there is no wheel")
    return MACHINES[number]


class CarryProgram(BuildHookInterface):  # type: ignore[type-arg]
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":
            return
        program = os.environ.get("GATEKEEPER") or os.path.join(self.root, "../../target/release/gatekeeper")
        if not os.path.isfile(program):
            raise SystemExit(f"{program}: no such file; run `make`, or name the program by GATEKEEPER")
        of = machine(program)
        build_data["tag"] = f"py3-none-manylinux2014_{of}.manylinux_2_17_{of}.musllinux_1_1_{of}"
        build_data["shared_scripts"][program] = "gatekeeper"
