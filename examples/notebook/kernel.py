"""Runs cells of Python in one interpreter, so that names stay from cell to cell. It runs in the sandbox.

Reads a JSON object in each line: {"cell": 1, "code": "..."}. Writes events as such lines, of type "stream", "result"
and "error", and "done" at the end of each cell.
"""

import ast
import io
import json
import os
import signal
import sys
import traceback
from types import FrameType

MIME_TYPES = {"_repr_html_": "text/html", "_repr_svg_": "image/svg+xml", "_repr_markdown_": "text/markdown"}

# The lines have descriptors of their own: a cell, or a program that it starts, has an empty input, and its output is
# standard error.
requests = os.fdopen(os.dup(0), encoding="utf-8")
events = os.fdopen(os.dup(1), "w", encoding="utf-8")
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
os.dup2(2, 1)

names: dict[str, object] = {"__name__": "__main__"}
cell = 0
running = False


def emit(kind: str, **fields: object) -> None:
    events.write(json.dumps({"cell": cell, "type": kind, **fields}) + "\n")
    events.flush()


class CellOutput(io.TextIOBase):
    """What a cell prints becomes events."""

    def write(self, text: str) -> int:
        emit("stream", text=text)
        return len(text)


def interrupt(_number: int, _frame: FrameType | None) -> None:
    # An interrupt that comes between two cells has no effect.
    if running:
        raise KeyboardInterrupt


def execute(code: str) -> object:
    """Runs a cell, and returns the value of its last line if that is an expression."""
    body = ast.parse(code, "<cell>").body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
    if not isinstance(last, ast.Expr):
        return None
    return eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)


def describe(value: object) -> dict[str, str]:
    """Returns the forms in which a value can be shown, by their MIME types, as Jupyter does."""
    forms = {"text/plain": repr(value)}
    for method, mime_type in MIME_TYPES.items():
        if hasattr(value, method):
            forms[mime_type] = str(getattr(value, method)())
    return forms


def run(code: str) -> None:
    global running
    try:
        running = True
        value = execute(code)
        if value is not None:
            emit("result", data=describe(value))
        running = False
    except BaseException as error:
        running = False
        trace = "".join(traceback.format_exception(error))
        emit("error", name=type(error).__name__, message=str(error), trace=trace)


signal.signal(signal.SIGINT, interrupt)
sys.stdout = CellOutput()
for line in requests:
    request = json.loads(line)
    cell = request["cell"]
    run(request["code"])
    emit("done")
