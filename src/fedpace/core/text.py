r"""Text from outside: names of clients, classes, methods and files, and what errors say, made safe to show.

Whoever writes a file chooses such names. Each place where text is shown gives a meaning to characters of its own, so
each has a function: a terminal :func:`for_terminal`, HTML :func:`for_html`, a page in Markdown :func:`for_markdown`, a
figure :func:`for_figure`, and a file name :func:`slug`.
"""

from __future__ import annotations

import html
import re

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

    >>> one_line("two\n  lines"), one_line(KeyError())
    ('two lines', 'KeyError')
    """
    return printable(" ".join(str(text).split())) or (type(text).__name__ if isinstance(text, BaseException) else "")


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


def slug(text: object) -> str:
    r"""A text as a file name: it stays in its folder, and is no hidden file.

    >>> slug("anneal.k=8, beta=0.3"), slug("../../etc/passwd"), slug("..")
    ('anneal.k=8-beta=0.3', 'etc-passwd', 'unnamed')
    """
    return re.sub(r"[^\w.=+-]+", "-", str(text)).strip("-.")[:LONGEST_NAME] or "unnamed"
