"""A notebook: cells of Python that run in one interpreter in a sandbox, with their state, and copies of that state."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from coppice import Command, Sandbox

KERNEL = Path(__file__).with_name("kernel.py")
TAG = "kernel"
ADOPTION_TIMEOUT_S = 30.0
INTERRUPT_TIMEOUT_S = 10.0
# In characters, of one cell.
MAX_TEXT = 100_000
# In characters, of one event. The output of a sandbox may be anything.
MAX_EVENT = 16 * 2**20


class KernelError(Exception):
    """The interpreter has ended, or its output is lost."""


@dataclass
class CellResult:
    """What a cell printed, and its value in each form that it has, by MIME type."""

    number: int
    text: str = ""
    data: dict[str, str] = field(default_factory=dict)
    # Such as "ValueError: no number". None if the cell ran to its end.
    error: str | None = None
    trace: str = ""


class Notebook:
    """An interpreter in a sandbox. It ends with its sandbox."""

    def __init__(self, sandbox: Sandbox, kernel: Command, *, cells: int = 0, offset: int = 0) -> None:
        self.sandbox = sandbox
        self._kernel = kernel
        self._cells = cells
        self._events = self._read_events(offset)

    @classmethod
    def start(cls, sandbox: Sandbox) -> Notebook:
        sandbox.upload("/opt/kernel.py", KERNEL.read_bytes())
        # A command that outlives its connection: a lost connection does not lose the state.
        return cls(sandbox, sandbox.commands.start("exec python3 /opt/kernel.py", stdin=True, tag=TAG))

    def run(self, code: str, *, timeout_s: float = 60) -> CellResult:
        """Runs a cell. After `timeout_s` it is interrupted: its error is then KeyboardInterrupt, and the state stays.

        A cell that does not end then ends with its interpreter, and its state is lost: `KernelError`.
        """
        self._cells += 1
        result = CellResult(self._cells)
        done = threading.Event()
        watch = threading.Thread(target=self._stop_late, args=(done, timeout_s), daemon=True)
        watch.start()
        try:
            self._kernel.write(json.dumps({"cell": self._cells, "code": code}) + "\n")
            for event in self._events:
                # A copy may read events of cells before the fork again.
                if event.get("cell", self._cells) != self._cells:
                    continue
                if event["type"] == "done":
                    return result
                self._add(result, event)
        finally:
            # An interrupt that is on its way must not reach the next cell.
            done.set()
            watch.join()
        raise KernelError(f"the interpreter has ended in cell {self._cells}")

    def interrupt(self) -> None:
        """Interrupts the cell that runs, as Ctrl-C does. Any thread may call it."""
        self._kernel.signal("INT")

    def _stop_late(self, done: threading.Event, timeout_s: float) -> None:
        if done.wait(timeout_s):
            return
        self.interrupt()
        if not done.wait(INTERRUPT_TIMEOUT_S):
            self._kernel.signal("KILL")

    def fork(self) -> Notebook:
        """Copies the sandbox, with the interpreter and all its names. Destroy the copy's sandbox when it is done."""
        [child] = self.sandbox.fork()
        try:
            kernel = self._find_kernel(child)
            # The interpreter waits for a cell, so all of its output so far is of earlier cells.
            return Notebook(child, kernel, cells=self._cells, offset=kernel.info().output_bytes)
        except BaseException:
            child.destroy()
            raise

    @staticmethod
    def _find_kernel(child: Sandbox) -> Command:
        """The copy of a command has an id of its own, which the service knows a moment after the fork."""
        ends_at = time.monotonic() + ADOPTION_TIMEOUT_S
        while time.monotonic() < ends_at:
            for kernel in child.commands.list(state="running", tag=TAG):
                return kernel
            time.sleep(0.1)
        raise KernelError("the copy of the sandbox has no interpreter")

    @staticmethod
    def _add(result: CellResult, event: dict[str, Any]) -> None:
        if event["type"] == "stream":
            result.text = (result.text + event["text"])[-MAX_TEXT:]
        elif event["type"] == "result":
            result.data = event["data"]
        elif event["type"] == "error":
            result.error, result.trace = f"{event['name']}: {event['message']}", event["trace"]

    def _read_events(self, offset: int) -> Iterator[dict[str, Any]]:
        """Yields the events of the kernel. After a lost connection it continues where it was."""
        rest = ""
        for piece in self._kernel.output(offset=offset):
            if piece.type == "dropped":
                raise KernelError("a cell printed more than the service keeps")
            if piece.type == "stderr":
                # Programs that a cell starts write here.
                yield {"type": "stream", "text": piece.data}
                continue
            *lines, rest = (rest + piece.data).split("\n")
            yield from map(json.loads, lines)
            if len(rest) > MAX_EVENT:
                raise KernelError("an event of the interpreter is too long")
