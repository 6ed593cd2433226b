"""Switch cues: which token completes a discourse marker whose sentence may be delegated?

A cue fires at the token that completes it, without look-ahead. Its left word bound is checked on
the joined text (``now`` never fires in ``know``), its right bound only inside the completing token
(``Otherwise`` as one token never fires ``Other``). Bounds apply at letters and digits only, so
``=`` and ``\\[`` are cues too; scripts written without spaces have none. A cue with a letter does
not fire in code or math; no cue fires in ``\\boxed{…}`` or on a ``####`` line. Markers, which only
say where the answer is, are matched everywhere.

The reference (paper's code, `utils/utils.py`) sends cues as stop strings: substrings without any
bound.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass

from .._errors import UsageError
from .scanner import Scanner

# Hiragana to Katakana, CJK ideographs with their extensions, Thai and Lao, Burmese, Khmer: words
# there have no spaces between.
_UNSPACED = (
    (0x3040, 0x30FF),
    (0x3400, 0x9FFF),
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
    (0x0E00, 0x0EFF),
    (0x1000, 0x109F),
    (0x1780, 0x17FF),
)

_PUNCTUATION = " \t\r\n.,;:!?*_#>-"

LONGEST_OPENING = 80
"""Characters at a segment's start that tell whether it is bare; no cue is nearly as long."""


def wordlike(char: str) -> bool:
    """Whether the character is part of a word, so that a bound beside it matters."""
    if not char or unicodedata.category(char)[0] not in "LMN":
        return False
    return not any(low <= ord(char) <= high for low, high in _UNSPACED)


@dataclass(frozen=True, slots=True)
class _Cue:
    name: str
    text: str
    ignore_case: bool
    bound_left: bool
    bound_right: bool
    lettered: bool


def _fold(text: str, ignore_case: bool) -> str:
    text = text.replace("’", "'")
    return text.lower() if ignore_case else text


class CueSet:
    """An immutable set of cues, indexed by their last character.

    Args:
        cues: the strings. Surrounding white space is dropped (``So `` is ``So``). Duplicates count
            once, under the first one's name.
        ignore_case: whether letters match in either case.

    Attributes:
        lasts: characters that a cue can end at; at any other one nothing need be looked for.

    Raises:
        UsageError: a cue is empty.
    """

    __slots__ = ("_by_last", "_folded", "_ignore_case", "lasts", "longest", "names")

    def __init__(self, cues: Iterable[str], *, ignore_case: bool = False) -> None:
        by_last: dict[str, list[_Cue]] = {}
        names: dict[str, str] = {}  # by what they match
        for given in cues:
            name = given.strip()
            if not name:
                raise UsageError("a cue must have a character that is not white space")
            text = _fold(name, ignore_case)
            if text in names:
                continue
            names[text] = name
            cue = _Cue(
                name,
                text,
                ignore_case,
                wordlike(text[0]),
                wordlike(text[-1]),
                any(c.isalpha() for c in text),
            )
            by_last.setdefault(text[-1], []).append(cue)
        for found in by_last.values():
            found.sort(key=lambda cue: -len(cue.text))
        self._by_last = by_last
        both = (*by_last, *map(str.upper, by_last)) if ignore_case else by_last
        self.lasts = frozenset(both) | ({"’"} if "'" in by_last else set())
        self._folded = frozenset(names)
        self._ignore_case = ignore_case
        self.names = tuple(names.values())
        self.longest = max(map(len, names), default=0)

    def __len__(self) -> int:
        return len(self.names)

    def __contains__(self, name: str) -> bool:
        return _fold(name.strip(), self._ignore_case) in self._folded

    def without(self, others: CueSet) -> CueSet:
        """The cues that are not among `others`."""
        left = [name for name in self.names if name not in others]
        return CueSet(left, ignore_case=self._ignore_case)

    def match(self, scanner: Scanner, after: str, *, anywhere: bool = False) -> str | None:
        """The longest cue that ends at the scanner's last character.

        `after` is the next character inside the same token, or "". With `anywhere`, code, math
        and boxed results are no obstacle.
        """
        last = scanner.tail[-1:]
        candidates = self._by_last.get(last) or self._by_last.get(last.lower())
        if last == "’":
            candidates = self._by_last.get("'")
        if not candidates or (scanner.sealed and not anywhere):
            return None
        for cue in candidates:
            size = len(cue.text)
            if _fold(scanner.tail[-size:], cue.ignore_case) != cue.text:
                continue
            if cue.lettered and scanner.inside and not anywhere:
                continue
            if cue.bound_left and wordlike(scanner.tail[-size - 1 : -size]):
                continue
            if cue.bound_right and wordlike(after):
                continue
            return cue.name
        return None


def bare(opening: str, cue: str) -> bool:
    """Whether a segment that begins so holds nothing but the cue that ends it, or its rest."""
    written, name = (text.strip(_PUNCTUATION).replace("’", "'").lower() for text in (opening, cue))
    return name.endswith(written) if written else not name
