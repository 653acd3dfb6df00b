"""Whose a certificate is and who issued it, also where it is not trusted and the library therefore says nothing about it."""

from __future__ import annotations

from collections.abc import Iterator

_NAMES = {b"\x55\x04\x03": "name", b"\x55\x04\x0a": "organisation"}
_SEQUENCE, _VERSION, _OID = 0x30, 0xA0, 0x06
_LONG, _WIDE = 0x80, 0x1E


def subject_and_issuer(der: bytes) -> tuple[str, str]:
    """The names in a certificate, as ``name (organisation)``. Raises ValueError if it is none."""
    try:
        (_, certificate), *_ = _values(der)
        (_, signed), *_ = _values(certificate)
        fields = [content for tag, content in _values(signed) if tag != _VERSION]
        # Serial number, algorithm, issuer, validity, subject.
        return _name(fields[4]), _name(fields[2])
    except (IndexError, ValueError):
        raise ValueError("no certificate") from None


def _name(encoded: bytes) -> str:
    found: dict[str, str] = {}
    for _, group in _values(encoded):
        for _, attribute in _values(group):
            (tag, kind), (text_tag, text) = list(_values(attribute))[:2]
            if tag == _OID and kind in _NAMES:
                coding = "utf-16-be" if text_tag == _WIDE else "utf-8"
                found.setdefault(
                    _NAMES[kind], "".join(filter(str.isprintable, text.decode(coding, "replace")))[:80]
                )
    name, organisation = found.get("name"), found.get("organisation")
    if name and organisation and name != organisation:
        return f"{name} ({organisation})"
    return name or organisation or "an unnamed authority"


def _values(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of a DER sequence: tag and content of each."""
    at = 0
    while at < len(data):
        tag, length = data[at], data[at + 1]
        at += 2
        if length >= _LONG:
            width = length - _LONG
            length = int.from_bytes(data[at : at + width], "big")
            at += width
        if at + length > len(data):
            raise ValueError("cut")
        yield tag, data[at : at + length]
        at += length
