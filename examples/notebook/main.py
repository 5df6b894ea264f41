"""Runs some cells, interrupts a runaway one, and tries a change of the state in a copy."""

from __future__ import annotations

from coppice import Coppice

from notebook import Notebook

CHART = """
class Chart:
    def __init__(self, values):
        self.values = values

    def _repr_svg_(self):
        bars = (f'<rect x="{20 * i}" y="{100 - v}" width="16" height="{v}"/>' for i, v in enumerate(self.values))
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="200" height="100">{"".join(bars)}</svg>'

Chart([10 * price for price in prices])
"""


def show(notebook: Notebook, code: str, *, name: str = "In", timeout_s: float = 60) -> None:
    """Runs a cell, and prints it and its result."""
    result = notebook.run(code, timeout_s=timeout_s)
    lines = code.strip().split("\n")
    print(f"{name} [{result.number}]: {lines[0]}{' …' if len(lines) > 1 else ''}")
    if result.text:
        print(to_printable(result.text), end="")
    for mime_type, form in result.data.items():
        shown = form if mime_type == "text/plain" and "\n" not in form else f"{len(form)} characters"
        print(f"Out[{result.number}]: {mime_type}: {to_printable(shown)}")
    if result.error:
        print(f"Out[{result.number}]: {to_printable(result.error)}")


def to_printable(text: str) -> str:
    """Removes control characters: text out of a sandbox must not control your terminal."""
    return "".join(character for character in text if character.isprintable() or character in "\n\t")


def main() -> None:
    # The end of a block destroys its sandbox, also after an error or Ctrl-C.
    with (
        Coppice() as client,
        client.sandboxes.create(
            image="coppice/base:1",
            mem_mib=256,
            timeout=600,
            labels={"example": "notebook"},
            network_profile="locked-down",
        ) as sandbox,
    ):
        notebook = Notebook.start(sandbox)
        show(notebook, "prices = [3, 4, 5]")
        show(notebook, "print(len(prices), 'prices')\nsum(prices)")
        show(notebook, CHART)
        show(notebook, "prices[3]")
        show(notebook, "while True: pass", timeout_s=3)

        branch = notebook.fork()
        with branch.sandbox:
            show(branch, "prices = [2 * price for price in prices]\nsum(prices)", name="What if")
        show(notebook, "sum(prices)")


if __name__ == "__main__":
    main()
