"""One table of text in four notations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.table import Table

from fedpace.core import for_html, for_markdown, for_terminal, one_line

Side = Literal["left", "right"]


@dataclass(frozen=True)
class TextTable:
    """Cells with a title above and a caption below."""

    title: str
    header: Sequence[str]
    sides: Sequence[Side]
    rows: Sequence[Sequence[str]]
    caption: str

    @classmethod
    def of_columns(cls, title: str, columns: Mapping[str, tuple[Side, Sequence[str]]], caption: str) -> TextTable:
        """From columns by name: a side, and a cell for each row."""
        sides, cells = zip(*columns.values(), strict=True)
        return cls(title, list(columns), sides, [list(row) for row in zip(*cells, strict=True)], caption)

    def rich(self, bold: Collection[int] = ()) -> Table:
        """For a terminal; the rows whose numbers are in ``bold`` stand out."""
        caption = "\n".join(map(for_terminal, self.caption.split("\n")))
        table = Table(title=for_terminal(self.title), caption=caption, caption_justify="left")
        for column, side in zip(self.header, self.sides, strict=True):
            table.add_column(for_terminal(column), justify=side, overflow="fold")  # names are never cut off
        for number, cells in enumerate(self.rows):
            table.add_row(*map(for_terminal, cells), style="bold" if number in bold else None)
        return table

    def plain(self) -> str:
        """Fixed width, no colour."""
        lines = [[one_line(cell) for cell in line] for line in [self.header, *self.rows]]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        lines.insert(1, ["-" * width for width in widths])
        padded = ["  ".join(map(_pad, line, widths, self.sides)).rstrip() for line in lines]
        return "\n".join([one_line(self.title), *padded, *map(one_line, self.caption.split("\n"))])

    def markdown(self) -> str:
        """A pipe table."""
        rule = [":---" if side == "left" else "---:" for side in self.sides]
        header, *rows = ([for_markdown(cell) for cell in line] for line in [self.header, *self.rows])
        lines = [f"| {' | '.join(cells)} |" for cells in [header, rule, *rows]]
        # A bare star may open an emphasis.
        caption = [for_markdown(line).replace("*", r"\*") for line in self.caption.split("\n")]
        return "\n".join([f"**{for_markdown(self.title)}**", "", *lines, "", *caption])

    def html(self) -> str:
        """A table element."""
        body = "".join(self._html_row("td", row) for row in self.rows)
        caption = f"<caption>{for_html(self.title)}<br><small>{for_html(self.caption)}</small></caption>"
        return f"<table>{caption}<thead>{self._html_row('th', self.header)}</thead><tbody>{body}</tbody></table>"

    def _html_row(self, tag: str, cells: Sequence[str]) -> str:
        inner = (
            f'<{tag} style="text-align: {side}">{for_html(cell)}</{tag}>'
            for cell, side in zip(cells, self.sides, strict=True)
        )
        return f"<tr>{''.join(inner)}</tr>"


def _pad(cell: str, width: int, side: Side) -> str:
    return cell.ljust(width) if side == "left" else cell.rjust(width)
