"""What IPython shows of a value."""

from themis.display import Displayed


class _Printer:
    def __init__(self) -> None:
        self.shown = ""

    def text(self, text: str) -> None:
        self.shown += text


def terminal_text(value: Displayed) -> str:
    """The text for a terminal, by IPython's protocol."""
    printer = _Printer()
    value._repr_pretty_(printer, cycle=False)
    return printer.shown
