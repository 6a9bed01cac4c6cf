"""Prelude of every generated source: element types and their loads and stores."""

from __future__ import annotations

# The storage type of each dtype.
STORED = {
    "bool": "bool",
    "int8": "signed char",
    "int16": "short",
    "int32": "int",
    "int64": "long long",
    "uint8": "unsigned char",
    "uint16": "unsigned short",
    "uint32": "unsigned",
    "uint64": "unsigned long long",
    "float16": "f16",
    "bfloat16": "bf16",
    "float32": "float",
    "float64": "double",
}
# The compute type: float32 for float16 and bfloat16.
COMPUTED = STORED | {"float16": "float", "bfloat16": "float"}
# Elements that are only moved need no type except their size.
BITS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "unsigned long long"}

# A program can put every helper into one source, so a guard includes the prelude once.
# Tests define HOST to compile sources for the CPU, and then provide replacements for
# the device instructions.
PRELUDE = r"""
#ifndef PRELUDE
#define PRELUDE
#define DEVICE static __device__ __forceinline__
typedef long long i64;
typedef unsigned long long u64;
struct alignas(2) f16 { unsigned short bits; };
struct alignas(2) bf16 { unsigned short bits; };
#ifndef HOST
DEVICE float half_to_float(unsigned short h) {
  float x; asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(h)); return x;
}
DEVICE unsigned short float_to_half(float x) {
  unsigned short h; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h;
}
#endif
#if __CUDA_ARCH__ >= 800
DEVICE unsigned short float_to_bfloat(float x) {
  unsigned short h; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(h) : "f"(x)); return h;
}
#else
DEVICE unsigned short float_to_bfloat(float x) {
  unsigned bits = __float_as_uint(x);
  return x != x ? (bits >> 16) | 64 : (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
}
#endif
template <class T, int N> struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  T of[N];
};

// Let the compiler forget what it knows of a pack: it would keep all that was computed
// of it, which takes more registers than the pack.
template <class T> DEVICE void renew(T& pack) {
#ifndef HOST
  #pragma unroll
  for (int n = 0; n < sizeof(T) / 4; ++n)
    asm volatile("" : "+r"(((unsigned*)&pack)[n]));
#endif
}

// Write a pack by one access, which the compiler makes no part of other ones.
template <class T> DEVICE void write_pack(T* to, const T& pack) {
#ifndef HOST
  const u64 at = __cvta_generic_to_global(to);
  const unsigned* w = (const unsigned*)&pack;
  if constexpr (sizeof(T) == 16)
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" : : "l"(at), "r"(w[0]),
                 "r"(w[1]), "r"(w[2]), "r"(w[3]) : "memory");
  else if constexpr (sizeof(T) == 8)
    asm volatile("st.global.v2.b32 [%0], {%1, %2};" : : "l"(at), "r"(w[0]), "r"(w[1])
                 : "memory");
  else
#endif
    *to = pack;
}

// From memory to registers.
template <class T> DEVICE T widen(T x) { return x; }
DEVICE float widen(f16 x) { return half_to_float(x.bits); }
DEVICE float widen(bf16 x) { return __uint_as_float((unsigned)x.bits << 16); }

// From registers to memory: to the nearest, of two as near to the even one.
template <class T> struct Narrow {
  DEVICE T of(T x) { return x; }
};
template <> struct Narrow<f16> {
  DEVICE f16 of(float x) { f16 y; y.bits = float_to_half(x); return y; }
};
template <> struct Narrow<bf16> {
  DEVICE bf16 of(float x) { bf16 y; y.bits = float_to_bfloat(x); return y; }
};

// The bits of a number as a number of another type of the same size.
template <class To, class From> DEVICE To reinterpret(From x) {
  union { From from; To to; } bits;
  bits.from = x;
  return bits.to;
}

// The value of the thread whose number in the warp differs in these bits.
#define EXCHANGE(T) \
  DEVICE T exchange(T x, int bits) { return __shfl_xor_sync(~0u, x, bits); }
EXCHANGE(int) EXCHANGE(unsigned) EXCHANGE(float) EXCHANGE(double)
EXCHANGE(i64) EXCHANGE(u64)
template <class T> DEVICE T exchange(T x, int bits) {
  return (T)exchange((int)x, bits);
}

// Integers that divide as in Python, and by zero give zero.
template <class T> DEVICE T quotient(T a, T b) {
  if (b == 0) return 0;
  if ((T)-1 < 0 && b == (T)-1) return (T)(0 - (u64)a);
  T q = (T)(a / b);
  return (T)(a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q);
}
template <class T> DEVICE T modulo(T a, T b) {
  if (b == 0 || ((T)-1 < 0 && b == (T)-1)) return 0;
  T r = (T)(a % b);
  return (T)(r != 0 && (r < 0) != (b < 0) ? r + b : r);
}
template <class T> DEVICE T common_divisor(T x, T y) {
  u64 a = x < 0 ? 0 - (u64)x : (u64)x, b = y < 0 ? 0 - (u64)y : (u64)y;
  while (b != 0) { u64 rest = a % b; a = b; b = rest; }
  return (T)a;
}
template <class T> DEVICE T integer_power(T base, T exponent) {
  u64 result = 1, factor = (u64)base;
  if (exponent < 0) return base == 1 ? 1 : base == (T)-1 ? (exponent & 1 ? -1 : 1) : 0;
  for (u64 rest = (u64)exponent; rest; rest >>= 1, factor *= factor)
    if (rest & 1) result *= factor;
  return (T)result;
}
template <class T> DEVICE T shift_left(T a, T b) {
  return (u64)b < 8 * sizeof(T) ? (T)((u64)a << b) : (T)0;
}
template <class T> DEVICE T shift_right(T a, T b) {
  return (u64)b < 8 * sizeof(T) ? (T)(a >> b) : a < 0 ? (T)-1 : (T)0;
}
// Where exp overflows to infinity the quotient is 0.
DEVICE float sigmoidf(float x) { return 1 / (1 + expf(-x)); }
DEVICE double sigmoid(double x) { return 1 / (1 + exp(-x)); }
DEVICE float modulo(float a, float b) {
  float r = fmodf(a, b);
  return b == 0 ? r : r == 0 ? copysignf(0.0f, b) : (b < 0) != (r < 0) ? r + b : r;
}
DEVICE double modulo(double a, double b) {
  double r = fmod(a, b);
  return b == 0 ? r : r == 0 ? copysign(0.0, b) : (b < 0) != (r < 0) ? r + b : r;
}
DEVICE float quotient(float a, float b) {
  if (b == 0) return a / b;
  float r = fmodf(a, b), q = (a - r) / b;
  q -= r != 0 && (b < 0) != (r < 0);
  float whole = floorf(q);
  return q == 0 ? copysignf(0.0f, a / b) : q - whole > 0.5f ? whole + 1 : whole;
}
DEVICE double quotient(double a, double b) {
  if (b == 0) return a / b;
  double r = fmod(a, b), q = (a - r) / b;
  q -= r != 0 && (b < 0) != (r < 0);
  double whole = floor(q);
  return q == 0 ? copysign(0.0, a / b) : q - whole > 0.5 ? whole + 1 : whole;
}

// An index of an axis, or -1 after leaving word of it; a negative one counts from the
// end. All threads that find a bad one write: one of theirs is reported.
DEVICE i64 checked(i64 index, i64 limit, i64* problem) {
  i64 place = index < 0 ? index + limit : index;
  if (place >= 0 && place < limit) return place;
  problem[0] = 1; problem[1] = index; problem[2] = limit;
  return -1;
}
#endif
"""
