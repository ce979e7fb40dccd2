"""Splits SQL text into tokens: words, quoted names, texts, numbers and signs, without blanks and comments. Pure.

Tokens are those of the engine's parser, so that words inside a text or a comment are not words of the statement. A sign
is one character: an operator of several characters is several adjacent signs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

# Linear in the length of the text: the pattern never backtracks.
_TOKEN = re.compile(
    r"""(?P<blank>\s+|--[^\n]*)
    |(?P<comment>/\*)
    |(?P<text>'[^']*+(?:''[^']*+)*+')
    |(?P<other>[eE]'[^'\\]*+(?:(?:\\.|'')[^'\\]*+)*+')
    |(?P<dollar>\$\w*\$)
    |(?P<quoted>"[^"]*+(?:""[^"]*+)*+"|`[^`]*+(?:``[^`]*+)*+`)
    |(?P<word>[^\W\d][\w$]*+)
    |(?P<decimal>(?:\d++|(?<![\w"\])]))\.\d++(?:[eE][+-]?\d++)?+)
    |(?P<number>\d+)
    |(?P<sign>.)""",
    re.DOTALL | re.VERBOSE,
)
_COMMENT_MARK = re.compile(r"/\*|\*/")


class Token(NamedTuple):
    """One token: its kind (text, other, quoted, word, decimal, number, sign), its text, and its position.

    A number is a whole one; a decimal has a point.
    """

    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        """The position after it."""
        return self.start + len(self.text)

    @property
    def name(self) -> str:
        """The name that it is, without its quotes; any other token as it is written."""
        quote = self.text[0]
        return self.text[1:-1].replace(quote * 2, quote) if self.kind == "quoted" else self.text

    @property
    def content(self) -> str:
        """What a text between single quotes says."""
        return self.text[1:-1].replace("''", "'")

    def says(self, text: str) -> bool:
        """Return whether it is this lower-case word or sign, in any case."""
        return self.text.lower() == text


def tokens_of(text: str) -> Iterator[Token]:
    """Return the tokens of a statement or an expression, in order."""
    position: int | None = 0
    dollars = True
    while position is not None:
        rest, position = _TOKEN.finditer(text, position), None
        for found in rest:
            kind = found.lastgroup or ""
            if kind == "comment":
                position = _comment_end(text, found.end())
                break
            if kind == "dollar":
                # The engine refuses a text with an unclosed dollar quote, so no further one is searched for.
                closed = text.find(found[0], found.end()) if dollars else -1
                dollars = closed >= 0
                position = closed + len(found[0]) if dollars else found.start() + 1
                yield (
                    Token("other", text[found.start() : position], found.start())
                    if dollars
                    else Token("sign", "$", found.start())
                )
                break
            if kind != "blank":
                yield Token(kind, found[0], found.start())


def quoted_name(name: str) -> str:
    """Return a name in double quotes."""
    return '"' + name.replace('"', '""') + '"'


def split_statements(text: str) -> tuple[list[str], str]:
    """Return the statements in a text that end with a semicolon, without it, and the rest after the last one."""
    whole = []
    begin = 0
    for token in tokens_of(text):
        if token.text in ("'", '"'):
            # An unclosed text or name includes the whole rest.
            break
        if token.text == ";":
            whole.append(text[begin : token.start])
            begin = token.start + 1
    return [statement for statement in whole if statement.strip()], text[begin:]


def _comment_end(text: str, position: int) -> int:
    """Return the end of a comment; comments nest."""
    depth = 1
    while depth:
        found = _COMMENT_MARK.search(text, position)
        if found is None:
            return len(text)
        depth += 1 if found[0] == "/*" else -1
        position = found.end()
    return position
