"""Which tokens wrote these bytes: the ids that llama-server's stream leaves out.

The server sends nothing while its text ends inside a UTF-8 character, so of the tokens of one
character only the last one's id arrives, with the text of all of them.
"""

from __future__ import annotations

from ._vocabulary import Vocabulary

_MOST = 64
"""Splits after which no more are looked for: there is no single one then."""


def cut_off(data: bytes) -> bool:
    """Whether the bytes end inside a UTF-8 character, by the server's own rule.

    Source: ``validate_utf8`` in llama.cpp's server, which looks at the last four bytes only.
    """
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        needs = 2 if byte & 0xE0 == 0xC0 else 3 if byte & 0xF0 == 0xE0 else 4
        if (needs < 4 or byte & 0xF8 == 0xF0) and back < needs:
            return True
    return False


def splits(missing: bytes, count: int, vocabulary: Vocabulary) -> list[tuple[int, ...]]:
    """Every way to write `missing` in `count` tokens of which each was held back.

    Args:
        missing: what the lost tokens wrote.
        count: how many there are, at least 1.
        vocabulary: of the model.

    Returns:
        Ids, those with the longest first tokens first; at most 64 ways. Empty where there is
        none, for example because a byte that is no UTF-8 arrived as U+FFFD.
    """
    found: list[tuple[int, ...]] = []

    def extend(start: int, ids: tuple[int, ...]) -> None:
        left = count - len(ids)
        if left == 0:
            if start == len(missing):
                found.append(ids)
            return
        end = len(missing) - left + 1
        first = start + 1 if left > 1 else end  # the last token takes the rest
        for stop in range(min(end, start + vocabulary.longest), first - 1, -1):
            if not cut_off(missing[:stop]):
                continue
            for id in vocabulary.ids(missing[start:stop]):
                if len(found) < _MOST:
                    extend(stop, (*ids, id))

    extend(0, ())
    return found


def spread(data: bytes, count: int) -> list[bytes]:
    """Deal out what `count` tokens wrote together, where nothing tells who wrote what.

    All parts but the last end inside a character wherever `data` has room for that, so that
    nobody who reads whole characters can stop between these tokens.
    """
    cuts = [at for at in range(1, len(data)) if cut_off(data[:at])][: count - 1]
    cuts += [len(data)] * (count - 1 - len(cuts))
    return [data[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True)]
