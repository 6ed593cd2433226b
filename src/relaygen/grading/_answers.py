"""The result that an answer states: what stands in its last box, which choice it names.

Pure text logic; what two results mean is compared elsewhere (`_mathematics`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction

LETTERS = "ABCDEFGHIJ"
"""Of choices; the longest common lists have ten."""

_SPACES = re.compile(r"\s+")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_WRAPPED = re.compile(r"\\(?:text(?:bf|it|rm|normal)?|math(?:rm|bf|it|sf)|mbox)\s*\{([^{}]*)\}")

# "12\,345", "1{,}000", "10,\!080" and typographic spaces: three digits follow, and no fourth.
_GROUPS = re.compile(r"(?<=\d)(?:\{,\}|,?\\[,!;: ]|[~\u00a0\u2009\u202f])(?=\d{3}(?!\d))")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,])")
_SCIENTIFIC = re.compile(r"([+-]?\d+(?:\.\d+)?)[eE]([+-]?\d+)")
_MIXED = re.compile(r"([+-]?)(\d+) (\d+)/(\d+)")
_ENDLESS = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar)\s*\{(\d+)\}")
_COUNTED = re.compile(
    r"(\\?[$€£¥]?\s*[+-]?\d[\d.,]*(?:/\d+)?)\s+"
    r"([cmk]m(?=\^)|[A-Za-z]{3,}(?: [A-Za-z]+)*)(?:\^\{?[23]\}?)?"
)
_NUMBER = re.compile(r"\\?[$€£¥]?\s*([+-]?)\s*\\?[$€£¥]?(\d+(?:\.\d*)?|\.\d+)(?:\s*\\?[$€£¥])?")
_BASED = re.compile(r"[0-9A-Za-z]+_\{?(\d+)\}?")
_WORDS = re.compile(r"[A-Za-z][A-Za-z' -]*")

_POWERS = {"hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_SIGNS = {
    "\u2212": "-",
    "∞": r"\infty",
    "°": r"^\circ",
    "∅": r"\emptyset",
    r"\varnothing": r"\emptyset",
    "\\%": "%",
}
_CLOSING = re.compile(r"(?<!\\)\$\Z")
_THIN = re.compile(r"(?<!\\)(?:\\[,;:! ]|\s)+")
_ROOT = re.compile(r"√\s*\(?(\w+)\)?")

_LETTER = r"[\"'*_(\[{$\s]*(?:\\(?:text|textbf|mathrm|mathbf|boxed)\{)?\(?([A-Ja-j])"
_SAID = re.compile(
    r"(?:answer|choice|option)[\"'*_]*(?:\s+(?:is|are|would be|must be)\b|\s*[:=])"
    r"(?:\s*(?:option|choice|the (?:option|choice)))?\s*:?\s*" + _LETTER + r"(?![A-Za-z0-9])"
    r"(?=(?P<after>[^\n]{0,12}))",
    re.IGNORECASE,
)
_BRACKETED = re.compile(r"(?<![A-Za-z0-9_\\])[(\[]([A-Ja-j])[)\]]")
_ALONE = re.compile(r"^[\s*_]*(?:option |choice )?([A-J])[\s*_.]*$", re.MULTILINE | re.IGNORECASE)
_LISTED = re.compile(r"^[\s*_]*([A-J])[).:](?=\s|\*)", re.MULTILINE)
_IN_BOX = re.compile(
    r"(?:(?:option|choice|answer)\s*:?\s*)?[(\[]?([A-J])(?:[)\].:]+(?:\s.*)?)?", re.IGNORECASE
)
# "A" and "I" are words too: they count before one of these only.
_NO_WORD = re.compile(
    r"[*_\"'}\])$]*(?:$|[.,;:!?)\]]|\s*(?:$|[-–—(]|because\b|since\b|as\b|and\b|with\b|which\b))"
)


def boxed(text: str) -> str | None:
    r"""What stands in the last ``\boxed{}``; of nested boxes the inner one.

    None where there is none that is complete: one that was cut off holds half a result.
    """
    found = list(_boxes(text))
    return found[-1] if found else None


def unboxed(text: str) -> str:
    """The text in front of a last box that was cut off, or the whole text."""
    for match in _BOX.finditer(text):
        if text.startswith("{", match.end()) and _closing(text, match.end()) is None:
            return text[: match.start()]
    return text


def _boxes(text: str) -> Iterator[str]:
    for match in _BOX.finditer(text):
        start = match.end()
        if not text.startswith("{", start):
            word = re.match(r"[0-9A-Za-z]+", text[start:])  # \boxed 5
            if word and text[start - 1 : start].isspace():
                yield word.group()
        elif (end := _closing(text, start)) is not None and not _BOX.search(text, start, end):
            yield text[start + 1 : end].strip()


def _closing(text: str, start: int) -> int | None:
    """Where the brace that opens at `start` is closed; escaped braces do not count."""
    depth, at = 0, start
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] == "{":
            depth += 1
        elif text[at] == "}":
            depth -= 1
            if not depth:
                return at
        at += 1
    return None


def tidy(result: str) -> str:
    r"""A boxed result in the spelling that `math-verify` reads as everybody else does.

    Digit groups are joined, ``3e5`` and ``2 1/2`` are written out, ``0.\overline{2}`` becomes a
    fraction, counted things and a full stop at the end are left out.
    """
    result = _CLOSING.sub("", result.strip().removeprefix("$")).strip()
    whole = _WRAPPED.fullmatch(result)
    if whole and re.match(r"[\s$€£¥+-]*\.?\d", whole[1]):
        result = whole[1].strip()  # \text{33 apples}, \textbf{33}
    for sign, plain in _SIGNS.items():
        result = result.replace(sign, plain)
    result = _THIN.sub(" ", _GROUPS.sub("", result))
    result = _ENDLESS.sub(_fraction, _ROOT.sub(r"\\sqrt{\1}", result).rstrip(".,; "))
    if match := _SCIENTIFIC.fullmatch(result):
        return rf"{match[1]} \times 10^{{{match[2]}}}"
    if match := _MIXED.fullmatch(result):
        return rf"{match[1]}\frac{{{int(match[2]) * int(match[4]) + int(match[3])}}}{{{match[4]}}}"
    if (match := _COUNTED.fullmatch(result)) and "percent" not in match[2].lower():
        power = _POWERS.get(match[2].lower().split()[0])
        return match[1] if power is None else rf"{match[1]} \times 10^{{{power}}}"
    return result


def _fraction(match: re.Match[str]) -> str:
    whole, fixed, period = match.groups()
    scale = 10 ** len(fixed)
    value = Fraction(int((whole or "0") + fixed), scale)
    value += Fraction(int(period), scale * (10 ** len(period) - 1))
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def folded(text: str) -> str:
    """Its words: no fonts, brackets around everything, case or white space."""
    text = _WRAPPED.sub(r"\1", text.replace("\\ ", " "))
    text = _SPACES.sub(" ", text).strip(" .$").casefold()
    return text[1:-1] if re.fullmatch(r"\([a-z]\)", text) else text


def decided(one: str, two: str) -> bool | None:
    """Whether two tidied results are equal, where that needs no mathematics.

    None where it does. Numbers are compared exactly; numbers that are not whole and differ may
    still be one rounded, which is for mathematics to say.
    """
    if folded(one) == folded(two):
        return bool(folded(one))
    numbers = [_number(result) for result in (one, two)]
    if numbers[0] is not None and numbers[1] is not None:
        if numbers[0] == numbers[1]:
            return True
        return False if all(number.denominator == 1 for number in numbers if number) else None
    bases = [_BASED.fullmatch(result) for result in (one, two)]
    if bases[0] and bases[1] and bases[0][1] != bases[1][1]:
        return False  # math-verify leaves the base out
    if _worded(one) and _worded(two):
        return False  # else it multiplies the letters, and "listen" is "silent"
    return None


def _number(result: str) -> Fraction | None:
    result = _THOUSANDS.sub(lambda match: match[0].replace(",", ""), result)
    match = _NUMBER.fullmatch(result)
    return Fraction(match[1] + match[2].removesuffix(".")) if match else None


def _worded(result: str) -> bool:
    """Whether it is a word or more, said to be text or too long for a product of variables."""
    content = _WRAPPED.sub(r"\1", result)
    return bool(_WORDS.fullmatch(content)) and (content != result or len(content) > 4)


def choice(text: str) -> str | None:
    r"""The letter that an answer chooses, as a capital; None where it names none, or several.

    A box counts before a sentence such as "The answer is B", that before "(B)" and a letter alone
    on its line, and these before the one line that starts like an item of a list. Of several the
    last counts.
    """
    box = boxed(text)
    if box is not None and (letter := _boxed_letter(box)):
        return letter
    said = [match[1] for match in _SAID.finditer(text) if _is_letter(match)]
    if said:
        return str(said[-1]).upper()
    alone = [*_BRACKETED.finditer(text), *_ALONE.finditer(text)]
    if alone:
        return max(alone, key=lambda match: match.start(1))[1].upper()
    listed = {match[1] for match in _LISTED.finditer(text)}
    return listed.pop() if len(listed) == 1 else None


def _boxed_letter(box: str) -> str | None:
    content = _WRAPPED.sub(r"\1", box).replace("\\ ", " ").strip(" $.*")
    match = _IN_BOX.fullmatch(content)
    return match[1].upper() if match else None


def _is_letter(match: re.Match[str]) -> bool:
    """Whether the letter behind "answer is" is a choice and no word of the sentence."""
    letter, after = match[1], match["after"]
    if letter in "AI" or letter.islower():
        return _NO_WORD.match(after) is not None
    # "B or C" chooses nothing; neither does the start of "C. elegans", which is not looked into.
    return re.match(r"\s*(?:or|/)\s*\(?[A-J]\b", after) is None
