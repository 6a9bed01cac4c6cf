"""Stable hashes of byte strings: FarmHash64 and SipHash-2-4.

References: https://github.com/google/farmhash (farmhashna::Hash64),
https://www.aumasson.jp/siphash/siphash.pdf
"""

from __future__ import annotations

_MASK = 2**64 - 1
# Primes between 2 ** 63 and 2 ** 64, and the multiplier of Hash128to64.
_K0, _K1, _K2 = 0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F
_JOIN = 0xC6A4A7935BD1E995


def _word(data: bytes, at: int, size: int = 8) -> int:
    return int.from_bytes(data[at : at + size], "little")


def _rotate_right(x: int, n: int) -> int:
    """Rotate 64 bits to the right."""
    x &= _MASK
    return (x >> n | x << (64 - n)) & _MASK


def _rotate_left(x: int, n: int) -> int:
    return _rotate_right(x, 64 - n)


def _fold(x: int) -> int:
    x &= _MASK
    return x ^ (x >> 47)


def _mix(u: int, v: int, factor: int) -> int:
    """Mix two words into one."""
    a = _fold((u ^ v) * factor)
    return _fold((v ^ a) * factor) * factor & _MASK


def _up_to_16(data: bytes) -> int:
    n = len(data)
    factor = _K2 + 2 * n
    if n >= 8:
        a, b = _word(data, 0) + _K2, _word(data, n - 8)
        c = _rotate_right(b, 37) * factor + a
        d = (_rotate_right(a, 25) + b) * factor
        return _mix(c & _MASK, d & _MASK, factor)
    if n >= 4:
        return _mix(n + (_word(data, 0, 4) << 3), _word(data, n - 4, 4), factor)
    if n > 0:
        y = data[0] + (data[n >> 1] << 8)
        z = n + (data[-1] << 2)
        return _fold(y * _K2 ^ z * _K0) * _K2 & _MASK
    return _K2


def _halves(data: bytes, first: int) -> tuple[int, int, int, int]:
    """Return two words and their terms, the common part for 17 to 64 bytes."""
    n = len(data)
    factor = _K2 + 2 * n
    a, b = _word(data, 0) * first, _word(data, 8)
    c, d = _word(data, n - 8) * factor, _word(data, n - 16) * _K2
    y = (_rotate_right(a + b, 43) + _rotate_right(c, 30) + d) & _MASK
    return a, y, (a + _rotate_right(b + _K2, 18) + c) & _MASK, factor


def _up_to_64(data: bytes) -> int:
    n = len(data)
    a, y, z, factor = _halves(data, _K2)
    z = _mix(y, z, factor)
    e, f = _word(data, 16) * factor, _word(data, 24)
    g = (y + _word(data, n - 32)) * factor
    h = (z + _word(data, n - 24)) * factor
    u = _rotate_right(e + f, 43) + _rotate_right(g, 30) + h
    return _mix(u & _MASK, (e + _rotate_right(f + a, 18) + g) & _MASK, factor)


def _weak(data: bytes, at: int, a: int, b: int) -> tuple[int, int]:
    """Hash 32 bytes and two seeds to two words."""
    w, x, y, z = (_word(data, at + i) for i in (0, 8, 16, 24))
    a += w
    b = _rotate_right(b + a + z, 21)
    total = a + x + y
    return (total + z) & _MASK, (b + _rotate_right(total, 44) + a) & _MASK


def _round(data: bytes, at: int, state: tuple[int, ...], factor: int, times: int):
    """Process 64 bytes; `times` is 1, and 9 for the last block."""
    x, y, z, v0, v1, w0, w1 = state
    x = _rotate_right(x + y + v0 + _word(data, at + 8), 37) * factor & _MASK
    y = _rotate_right(y + v1 + _word(data, at + 48), 42) * factor & _MASK
    x ^= w1 * times & _MASK
    y = (y + v0 * times + _word(data, at + 40)) & _MASK
    z = _rotate_right(z + w0, 33) * factor & _MASK
    v = _weak(data, at, v1 * factor, x + w0)
    w = _weak(data, at + 32, z + w1, y + _word(data, at + 16))
    return z, y, x, *v, *w


def farm_hash(data: bytes) -> int:
    """Return the 64-bit FarmHash fingerprint of `data`.

    Example:
        >>> farm_hash(b"A") % 3, farm_hash(b"B") % 3
        (1, 0)
    """
    n = len(data)
    if n <= 16:
        return _up_to_16(data)
    if n <= 32:
        _, y, z, factor = _halves(data, _K1)
        return _mix(y, z, factor)
    if n <= 64:
        return _up_to_64(data)
    y = (81 * _K1 + 113) & _MASK
    z = _fold(y * _K2 + 113) * _K2 & _MASK
    state = ((81 * _K2 + _word(data, 0)) & _MASK, y, z, 0, 0, 0, 0)
    for at in range(0, (n - 1) // 64 * 64, 64):
        state = _round(data, at, state, _K1, 1)
    x, y, z, v0, v1, w0, w1 = state
    factor = _K1 + ((z & 0xFF) << 1)
    w0 += (n - 1) & 63
    v0 += w0
    w0 += v0
    state = _round(data, n - 64, (x, y, z, v0, v1, w0, w1), factor, 9)
    x, y, z, v0, v1, w0, w1 = state
    u = _mix(v0, w0, factor) + _fold(y) * _K0 + z
    return _mix(u & _MASK, (_mix(v1, w1, factor) + x) & _MASK, factor)


def _sip_round(a: int, b: int, c: int, d: int) -> tuple[int, int, int, int]:
    a = (a + b) & _MASK
    b = _rotate_left(b, 13) ^ a
    c = (c + d) & _MASK
    d = _rotate_left(d, 16) ^ c
    a = (_rotate_left(a, 32) + d) & _MASK
    d = _rotate_left(d, 21) ^ a
    c = (c + b) & _MASK
    b = _rotate_left(b, 17) ^ c
    return a, b, _rotate_left(c, 32), d


def sip_hash(data: bytes, key: tuple[int, int]) -> int:
    """Return the 64-bit SipHash-2-4 of `data` with a key of two words.

    Example:
        >>> sip_hash(b"A", (133, 137)) % 3
        1
    """
    k0, k1 = key[0] & _MASK, key[1] & _MASK
    # "somepseudorandomlygeneratedbytes", in ASCII.
    a, b = k0 ^ 0x736F6D6570736575, k1 ^ 0x646F72616E646F6D
    c, d = k0 ^ 0x6C7967656E657261, k1 ^ 0x7465646279746573
    padded = data + bytes(7 - len(data) % 8) + bytes([len(data) & 0xFF])
    for at in range(0, len(padded), 8):
        word = _word(padded, at)
        a, b, c, d = _sip_round(*_sip_round(a, b, c, d ^ word))
        a ^= word
    c ^= 0xFF
    for _ in range(4):
        a, b, c, d = _sip_round(a, b, c, d)
    return a ^ b ^ c ^ d


def join(first: int, second: int) -> int:
    """Combine two fingerprints; the order matters."""
    result = first ^ _JOIN ^ (_fold(second * _JOIN) * _JOIN & _MASK)
    return _fold(_fold(result * _JOIN) * _JOIN)
