"""Steps of a thought: stretches of text with a blank line between them."""

from __future__ import annotations


class Steps:
    """Feeds on one token at a time and says where a step is over.

    Attributes:
        fresh: at the start of a step: nothing but white space since the last one.
    """

    __slots__ = ("_bare", "fresh")

    def __init__(self) -> None:
        self.fresh = True
        self._bare = False  # the current line, behind a line break, has nothing but white space

    def feed(self, text: str, whole: bool = True) -> bool:
        """Whether a step is over behind this token, and the next one has not begun in it.

        Args:
            text: what the token completed; empty while a character is incomplete.
            whole: whether the text ends between characters.
        """
        ended = False
        for char in text:
            if char == "\n":
                if self._bare and not self.fresh:
                    ended = self.fresh = True
                self._bare = True
            elif not char.isspace():
                ended = self.fresh = self._bare = False
        if not whole:  # half a character is no white space
            ended = self.fresh = self._bare = False
        return ended

    def rewind(self) -> None:
        """Back to where the last step was over: what came since is taken back."""
        self.fresh = self._bare = True
