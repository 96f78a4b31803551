r"""Text from outside: names of clients, classes, methods and files, and what errors say, made safe to show.

Whoever writes a file chooses such names. Each place where text is shown gives a meaning to characters of its own, so
each has a function: a terminal :func:`for_terminal`, HTML :func:`for_html`, a page in Markdown :func:`for_markdown`, a
figure :func:`for_figure`, and a file name :func:`slug`.
"""

from __future__ import annotations

import html
import re
from reprlib import Repr
from typing import Any

from rich.markup import escape

LONGEST_NAME = 120
"""Characters of a file's name that come from outside; file systems allow 255 bytes in all."""


def printable(text: object) -> str:
    r"""A text whose control characters are spelled out: none moves a cursor, hides a name or turns its direction.

    >>> printable("a\x1b[2Jb\u202ec\nd")
    'a\\x1b[2Jb\\u202ec\\nd'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def one_line(text: object) -> str:
    r"""A text, or what an error says, as one printable line; an error that says nothing is named.

    Frames of a stack and arrays of several lines, which errors of other libraries hold, are left out.

    >>> one_line("two\n  lines"), one_line(KeyError())
    ('two lines', 'KeyError')
    >>> one_line("not equal: [[1. 2.]\n [3. 4.]]\nframe #0: f() + 0x7 (libc10.so)")
    'not equal: […]'
    """
    said = str(text)
    said = _without_blocks(said) if "\n" in said else said
    return printable(" ".join(said.split())) or (type(text).__name__ if isinstance(text, BaseException) else "")


_SEARCHED = 2_000  # characters: whoever writes a text may make it long
_FRAMES = re.compile(
    r"^[ \t]*(Traceback \(most recent call last\):|Exception raised from .*|frame #\d+:.*"
    r'|File ".*", line \d+.*(\n[ \t]{4,}.*)?)$',
    re.MULTILINE,
)
_NUMBERS = re.compile(r"\[[-+\d\s.,…einfa\[\]]+\]")


def _without_blocks(text: str) -> str:
    head = _FRAMES.sub("", text[:_SEARCHED])
    return _NUMBERS.sub(lambda found: "[…]" if "\n" in found[0] else found[0], head) + text[_SEARCHED:]


class _Short(Repr):
    """What is long is cut short, and an array is its shape."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = LONGEST_NAME

    def repr_ndarray(self, array: Any, level: int) -> str:
        return f"{type(array).__name__} of shape {tuple(array.shape)}"

    repr_Tensor = repr_Parameter = repr_DataFrame = repr_Series = repr_ndarray  # noqa: N815  # names of their types


def shown(value: object) -> str:
    """A value as a message shows it.

    >>> shown("ten"), shown([*range(1000)])
    ("'ten'", '[0, 1, 2, 3, 4, 5, ...]')
    """
    return _Short().repr(value)


def for_terminal(text: object) -> str:
    r"""One line that rich prints as it is.

    >>> for_terminal("[red]a\n[/]")
    '\\[red]a \\[/]'
    """
    return escape(one_line(text))


def for_html(text: object) -> str:
    """One line that a browser shows as it is, also within an attribute.

    >>> for_html("<b>'a'")
    '&lt;b&gt;&#x27;a&#x27;'
    """
    return html.escape(one_line(text))


def for_markdown(text: object) -> str:
    r"""One line that neither opens HTML, a link or code nor ends the cell of a table.

    >>> for_markdown("<img src=x>|[a](b)")
    '&lt;img src=x>\\|[a]\\(b)'
    """
    safe = one_line(text).replace("&", "&amp;").replace("<", "&lt;").replace("|", r"\|").replace("`", r"\`")
    return safe.replace("](", r"]\(")


def for_figure(text: object) -> str:
    r"""One line that matplotlib does not take for a formula.

    >>> for_figure("$5 to $10")
    '\\$5 to \\$10'
    """
    return one_line(text).replace("$", r"\$")


def without_markup(text: str) -> str:
    """A line of a docstring as people read it.

    >>> without_markup(":class:`ConflictFree`, whose ``c`` is 0.5")
    'ConflictFree, whose c is 0.5'
    """
    return re.sub(r":\w+:`~?([^`]+)`", r"\1", text).replace("``", "")


def slug(text: object) -> str:
    r"""A text as a file name: it stays in its folder, and is no hidden file.

    >>> slug("anneal.k=8, beta=0.3"), slug("../../etc/passwd"), slug("..")
    ('anneal.k=8-beta=0.3', 'etc-passwd', 'unnamed')
    """
    return re.sub(r"[^\w.=+-]+", "-", str(text)).strip("-.")[:LONGEST_NAME] or "unnamed"
