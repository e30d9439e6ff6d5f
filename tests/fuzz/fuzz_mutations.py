"""What is done to valid files: bytes changed, cut, repeated and exchanged, numbers replaced by the largest."""

import re

NUMBERS = (0, 1, -1, 127, 128, 255, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1, 2**63, 2**64 - 1)
TEXTS = (
    b"0",
    b"-1",
    b"1e999",
    b"-1e-999",
    b"NaN",
    b"Infinity",
    b"99999999999999999999",
    b"9" * 5000,
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b"\x00",
    b"\n",
    b"\xff\xfe",
    b"[" * 3000,
    b"{" * 500,
    b'{"a":' * 2000,
    b"../../x",
    b"/etc/passwd",
    b"\xed\xa0\x80",
    b"\\ud800",
    b"\\u0000",
    b",",
    b":",
    b"=",
    b"''",
    b"a" * 70000,
    b"&a ",
    b"*a",
    b"!!python/name:os.system ",
    b"${oc.env:HOME}",
    b"${x}",
    b"<<: ",
    b"~",
    b"    ",
    b"\t",
    b"%",
)


def mutated(rng, content, others, words=()):
    """``content`` after one to four changes; ``others`` are further valid files to take parts from."""
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        content = rng.choice(CHANGES)(rng, content, others, words)[: 2**18]
    return content


def _place(rng, content):
    return rng.randrange(len(content) + 1)


def _flip(rng, content, others, words):
    found = bytearray(content)
    for _ in range(rng.randint(1, 8) if found else 0):
        found[rng.randrange(len(found))] ^= 1 << rng.randrange(8)
    return bytes(found)


def _byte(rng, content, others, words):
    at = _place(rng, content)
    return content[:at] + bytes([rng.choice((0, 1, 127, 128, 255, rng.randrange(256)))]) + content[at + 1 :]


def _cut(rng, content, others, words):
    return content[: _place(rng, content)]


def _remove(rng, content, others, words):
    at = _place(rng, content)
    return content[:at] + content[at + rng.choice((1, 2, 4, 8, 64, 512)) :]


def _repeat(rng, content, others, words):
    at, size = _place(rng, content), rng.choice((1, 2, 8, 64, 512, 4096))
    return content[:at] + content[at : at + size] * rng.choice((2, 3, 10, 200)) + content[at + size :]


def _insert(rng, content, others, words):
    at = _place(rng, content)
    return content[:at] + rng.randbytes(rng.choice((1, 2, 4, 8, 100))) + content[at:]


def _number(rng, content, others, words):
    """A little- or big-endian integer over what is there."""
    at, size = _place(rng, content), rng.choice((1, 2, 4, 8))
    value = rng.choice(NUMBERS) % 2 ** (8 * size)
    return content[:at] + value.to_bytes(size, rng.choice(("little", "big"))) + content[at + size :]


def _splice(rng, content, others, words):
    other = rng.choice(others) if others else content
    at, start = _place(rng, content), _place(rng, other)
    return content[:at] + other[start : start + rng.choice((8, 64, 1000))] + content[at:]


def _text(rng, content, others, words):
    at = _place(rng, content)
    return content[:at] + rng.choice((*TEXTS, *words)) + content[at + rng.choice((0, 0, 1, 4)) :]


def _digits(rng, content, others, words):
    """Another text in place of a number or a word in quotes."""
    found = list(re.finditer(rb"-?\d[\d.]*|\"[^\"\n]*\"|'[^'\n]*'", content[:20000]))
    if not found:
        return _number(rng, content, others, words)
    match = rng.choice(found)
    return content[: match.start()] + rng.choice((*TEXTS, *words)) + content[match.end() :]


CHANGES = (_flip, _byte, _cut, _remove, _repeat, _insert, _number, _number, _splice, _text, _digits, _digits)
