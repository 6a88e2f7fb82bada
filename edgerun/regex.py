"""RE2 regular expressions by Python's `re`: translate what both can express, refuse the rest.

The differences that matter for a full match: RE2 has no backreferences, look-around, atomic groups or possessive
quantifiers; its `$` is the end of the text only; `\\d \\w \\s \\b` are ASCII; it knows `\\z`, `\\Q..\\E`, `\\x{..}` and
`[[:class:]]`. Greedy and lazy quantifiers match the same whole strings, so the flag U has no effect.
"""

from __future__ import annotations

import re

from edgerun.errors import UnsupportedError

_CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ", "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f",
}  # fmt: skip
_SPACES = r"\t\n\f\r "


def compile_re2(pattern: str) -> re.Pattern[str]:
    """The compiled equivalent of an RE2 pattern. Raises UnsupportedError for what cannot be expressed."""
    try:
        return re.compile(_Translator(pattern).run(), re.ASCII)
    except re.error as e:
        raise UnsupportedError(f"the regular expression {pattern!r} is not valid: {e}") from e


class _Translator:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.out: list[str] = []
        self.multiline = False
        self.open_groups: list[int] = [0]
        """For each open group, how many flag groups were opened inside it without a bracket in the source."""

    def refuse(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"{what} in the regular expression {self.pattern!r} is not RE2, or not supported")

    def take(self, text: str) -> bool:
        if self.pattern.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def run(self) -> str:
        fresh = True
        """Whether we are at the start of a group."""
        while self.at < len(self.pattern):
            c = self.pattern[self.at]
            self.at += 1
            if c == "(":
                fresh = self.group(fresh)
                continue
            if c == ")":
                self.out.append(")" * (self.open_groups.pop() + 1))
                if not self.open_groups:
                    raise self.refuse("an unbalanced bracket")
            elif c == "[":
                self.out.append(self.character_class())
            elif c == "\\":
                self.out.append(self.escape())
            elif c == "$":
                self.out.append("$" if self.multiline else r"\Z")
            elif c in "*+?" or (c == "{" and re.match(r"\d+(,\d*)?\}", self.pattern[self.at :])):
                self.quantifier(c)
            else:
                self.out.append(r"\{" if c == "{" else c)
            fresh = False
        if len(self.open_groups) != 1:
            raise self.refuse("an unbalanced bracket")
        return "".join(self.out) + ")" * self.open_groups[0]

    def quantifier(self, c: str) -> None:
        text = c
        if c == "{":
            end = self.pattern.index("}", self.at) + 1
            text += self.pattern[self.at : end]
            self.at = end
        if self.take("?"):
            text += "?"
        if self.at < len(self.pattern) and self.pattern[self.at] in "*+?":
            raise self.refuse("a doubled quantifier")
        self.out.append(text)

    def group(self, fresh: bool) -> bool:
        """Translate what follows an opening bracket; returns whether the reader is at the start of a group."""
        if not self.take("?"):
            self.out.append("(")
        else:
            named = re.match(r"P?<([A-Za-z_]\w*)>", self.pattern[self.at :])
            flags = re.match(r"([imsU]*)(-[imsU]+)?([:)])", self.pattern[self.at :])
            if named:
                self.at += named.end()
                self.out.append(f"(?P<{named[1]}>")
            elif flags:
                self.at += flags.end()
                return self.flags(flags[1], flags[2] or "", flags[3] == ")", fresh)
            else:
                raise self.refuse("look-around, or an unknown group")
        self.open_groups.append(0)
        return True

    def flags(self, on: str, off: str, unscoped: bool, fresh: bool) -> bool:
        self.multiline |= "m" in on
        on, off = on.replace("U", ""), off.replace("U", "")
        text = f"(?{on}{off if len(off) > 1 else ''}:"
        if unscoped:
            if not fresh:
                raise self.refuse("a flag in the middle of a group")
            self.open_groups[-1] += 1
        else:
            self.open_groups.append(0)
        self.out.append(text)
        return True

    def escape(self, inside: bool = False) -> str:
        """Translate what follows a backslash; `inside` a character class."""
        if self.at >= len(self.pattern):
            raise self.refuse("a backslash at the end")
        c = self.pattern[self.at]
        self.at += 1
        if c == "Q" and not inside:
            end = self.pattern.find("\\E", self.at)
            literal = self.pattern[self.at :] if end < 0 else self.pattern[self.at : end]
            self.at = len(self.pattern) if end < 0 else end + 2
            return "".join(map(re.escape, literal))
        if c in "01234567":
            digits = re.match(r"[0-7]{1,3}" if c == "0" else r"[0-7]{3}", self.pattern[self.at - 1 :])
            if not digits:
                raise self.refuse("a backreference")
            self.at += digits.end() - 1
            return re.escape(chr(int(digits[0], 8)))
        if c == "x":
            code = re.match(r"\{([0-9A-Fa-f]{1,6})\}|([0-9A-Fa-f]{2})", self.pattern[self.at :])
            if not code:
                raise self.refuse("an incomplete character code")
            self.at += code.end()
            return re.escape(chr(int(code[1] or code[2], 16)))
        if c == "s":
            return _SPACES if inside else f"[{_SPACES}]"
        if c == "S" and not inside:
            return f"[^{_SPACES}]"
        if c == "z" and not inside:
            return r"\Z"
        if c in "dDwWafnrtv" or (c in "AbB" and not inside):
            return "\\" + c
        if c.isalnum():
            raise self.refuse(f"the escape \\{c}")
        return re.escape(c)

    def character_class(self) -> str:
        parts = ["["]
        if self.take("^"):
            parts.append("^")
        first = True
        while first or not self.take("]"):
            if self.at >= len(self.pattern):
                raise self.refuse("an open character class")
            posix = re.match(r"\[:(\^?)(\w+):\]", self.pattern[self.at :])
            if posix:
                if posix[1] or posix[2] not in _CLASSES:
                    raise self.refuse(f"the class {posix[0]}")
                parts.append(_CLASSES[posix[2]])
                self.at += posix.end()
            else:
                c = self.pattern[self.at]
                self.at += 1
                parts.append(self.escape(inside=True) if c == "\\" else "\\" + c if c in "[]&|~^" else c)
            first = False
        return "".join([*parts, "]"])
