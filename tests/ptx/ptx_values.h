/* ptx_values.h - instructions of PTX that compute, by the text of the PTX ISA: not by gpu/port.h,
 * whose models of them are what these are compared with (tests/gpu/primitives.cu) */
#ifndef PTX_VALUES_H
#define PTX_VALUES_H

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int8_t s8;
typedef int16_t s16;
typedef int32_t s32;
typedef int64_t s64;
typedef float f32;
typedef double f64;

namespace ptx {

template <class T, int N> struct vec { T at[N]; };

/* ---- registers ---- */

/* A register's lower bits as another type */
template <class T, class U>
static inline T
value_of(U from)
{
	static_assert(sizeof(T) <= sizeof(U));
	T to;

	memcpy(&to, &from, sizeof to);
	return to;
}

/* A register may be wider than a whole number: widened by its sign. */
template <class U, class T>
static inline void
set(U &to, T from)
{
	if constexpr (sizeof(U) == sizeof(T)) {
		memcpy(&to, &from, sizeof to);
	} else {
		static_assert(std::is_integral_v<T> && std::is_integral_v<U>);
		static_assert(sizeof(U) > sizeof(T));
		to = (U)from;
	}
}

template <class P, int N, class T>
static inline vec<P, N>
parts(T from)
{
	static_assert(sizeof(P) * N == sizeof(T));
	return value_of<vec<P, N>>(from);
}

template <class T, class P>
static inline T
whole(vec<P, sizeof(T) / sizeof(P)> from)
{
	return value_of<T>(from);
}

static inline f32 bits_f32(u32 bits) { return value_of<f32>(bits); }
static inline f64 bits_f64(u64 bits) { return value_of<f64>(bits); }

/* ---- floating-point numbers of 16 bits ---- */

static inline f32
half_to_f32(u16 h)
{
	const u32 exponent = h >> 10 & 31, fraction = h & 1023;
	const f32 sign = h >> 15 ? -1.0f : 1.0f;

	if (exponent == 31)
		return bits_f32((u32)(h >> 15) << 31 | 0x7f800000 | fraction << 13);
	if (exponent == 0)
		return sign * ((f32)fraction * 0x1p-24f);
	return sign * bits_f32((exponent + 112) << 23 | fraction << 13);
}

/* Rounded to nearest, ties to even; a NaN has one pattern. */
static inline u16
f32_to_half(f32 x)
{
	const u16 sign = (u16)(value_of<u32>(x) >> 16 & 0x8000);
	const f32 a = fabsf(x);
	int exponent;
	f32 fraction;

	if (a != a)
		return 0x7fff;
	if (a >= 65520)
		return (u16)(sign | 0x7c00);
	if (a < 0x1p-14f)
		return (u16)(sign | (u16)nearbyintf(a * 0x1p24f));
	fraction = frexpf(a, &exponent);
	return (u16)(sign | (((u32)(exponent + 14) << 10) +
	    ((u32)nearbyintf(fraction * 2048) - 1024)));
}

static inline f32 bf16_to_f32(u16 h) { return bits_f32((u32)h << 16); }

static inline u16
f32_to_bf16(f32 x)
{
	const u32 bits = value_of<u32>(x), low = bits & 0xffff, high = bits >> 16;

	if (x != x)
		return 0x7fff;
	return (u16)(high + (low > 0x8000 || (low == 0x8000 && (high & 1))));
}

static inline u32
cvt_f16x2(f32 upper, f32 lower)
{
	return (u32)f32_to_half(upper) << 16 | f32_to_half(lower);
}

static inline u32
cvt_bf16x2(f32 upper, f32 lower)
{
	return (u32)f32_to_bf16(upper) << 16 | f32_to_bf16(lower);
}

static inline u32
mul_f16x2(u32 x, u32 y)
{
	return cvt_f16x2(half_to_f32((u16)(x >> 16)) * half_to_f32((u16)(y >> 16)),
	    half_to_f32((u16)x) * half_to_f32((u16)y));
}

/* A sum in f32 has enough bits for it to be rounded again. */
static inline u32
add_f16x2(u32 x, u32 y)
{
	return cvt_f16x2(half_to_f32((u16)(x >> 16)) + half_to_f32((u16)(y >> 16)),
	    half_to_f32((u16)x) + half_to_f32((u16)y));
}

/* 4 bits of exponent, 3 of fraction, no infinities */
static inline f32
e4m3_to_f32(u8 bits)
{
	const int exponent = bits >> 3 & 15, fraction = bits & 7;
	const f32 sign = bits >> 7 ? -1.0f : 1.0f;

	if ((bits & 127) == 127)
		return NAN;
	return sign * (exponent == 0 ? ldexpf((f32)fraction, -9) :
	    ldexpf((f32)(8 + fraction), exponent - 10));
}

static inline u32
e4m3x2_to_f16x2(u16 x)
{
	return cvt_f16x2(e4m3_to_f32((u8)(x >> 8)), e4m3_to_f32((u8)x));
}

/* Of a NaN and a number the number; +0 is more than -0. */
static inline u16
max_f16(u16 x, u16 y)
{
	const f32 a = half_to_f32(x), b = half_to_f32(y);

	if (a != a)
		return b != b ? 0x7fff : y;
	if (b != b)
		return x;
	if (a == b)
		return a == 0 ? (u16)(x & y) : x;
	return a > b ? x : y;
}

static inline u32
max_f16x2(u32 x, u32 y)
{
	return (u32)max_f16((u16)(x >> 16), (u16)(y >> 16)) << 16 | max_f16((u16)x, (u16)y);
}

/* ---- f32, f64 ---- */

f32 fma_rm(f32, f32, f32);
f32 add_rz(f32, f32);

static inline bool numbers(f64 x, f64 y) { return x == x && y == y; }
static inline f32 ftz(f32 x) { return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x; }

/* ex2.approx and rcp.approx are off by so many units in the last place: -wobble to wobble, by a
 * hash of the value; $PTX_WOBBLE, 0 where that is not set */
extern const int wobble;

static inline f32
approximate(f32 x)
{
	const u32 bits = value_of<u32>(x), hash = (bits ^ bits >> 15) * 0x2c1b3c6du;

	if (wobble == 0 || !(fabsf(x) > 0x1p-120f) || std::isinf(x))
		return x;
	return bits_f32(bits + (hash >> 16) % (2 * (u32)wobble + 1) - (u32)wobble);
}

static inline f32 ex2(f32 x) { return x == 0 ? 1 : approximate(exp2f(x)); }
static inline f32 ex2_ftz(f32 x) { return ftz(ex2(ftz(x))); }
static inline f32 rcp_ftz(f32 x) { return ftz(approximate(1 / ftz(x))); }
static inline f64 upper_half(f64 x) { return bits_f64(value_of<u64>(x) >> 32 << 32); }
static inline f64 ftz(f64 x) { return fabs(x) < 0x1p-1022 ? copysign(0, x) : x; }
/* Of the upper 32 bits alone */
static inline f64 rcp_ftz(f64 x) { return ftz(upper_half(1 / ftz(upper_half(x)))); }
static inline f32 saturated(f32 x) { return x != x ? 0 : fminf(fmaxf(x, 0), 1); }

static inline f32
fminimum(f32 a, f32 b)
{
	if (a == 0 && b == 0)
		return std::signbit(a) ? a : b;
	return a != a ? b : b != b ? a : a < b ? a : b;
}

static inline f32
fmaximum(f32 a, f32 b)
{
	if (a == 0 && b == 0)
		return std::signbit(a) ? b : a;
	return a != a ? b : b != b ? a : a > b ? a : b;
}

/* ---- whole numbers ---- */

template <class T> static inline T minimum(T a, T b) { return a < b ? a : b; }
template <class T> static inline T maximum(T a, T b) { return a > b ? a : b; }

template <class T>
static inline T
product(T a, T b)
{
	if constexpr (sizeof(T) == 2)
		return (T)((u32)a * (u32)b);
	else
		return a * b;
}

/* Of a division by zero, which nvcc may move in front of the test for it, PTX says nothing. */
template <class T> static inline T quotient(T a, T b) { return b == 0 ? (T)~(T)0 : a / b; }
template <class T> static inline T remainder_of(T a, T b) { return b == 0 ? a : a % b; }

/* Saturates; a NaN is 0. */
template <class I, class F>
static inline I
to_integer(F x)
{
	typedef std::numeric_limits<I> limits;

	if (x != x)
		return 0;
	if (x <= (F)limits::min())
		return limits::min();
	return x >= (F)limits::max() ? limits::max() : (I)x;
}

template <class T>
static inline T
shl(T a, u32 by)
{
	return by >= sizeof(T) * 8 ? 0 : (T)(a << by);
}

template <class T>
static inline T
shr(T a, u32 by)
{
	if (by >= sizeof(T) * 8)
		return std::is_signed_v<T> && a < 0 ? (T)-1 : 0;
	return (T)(a >> by);
}

/* a + b + carry; the new carry to *out */
static inline u32
add_carry(u32 a, u32 b, u32 carry, u32 *out = NULL)
{
	const u64 sum = (u64)a + b + carry;

	if (out != NULL)
		*out = (u32)(sum >> 32);
	return (u32)sum;
}

static inline u32
sub_carry(u32 a, u32 b, u32 borrow, u32 *out = NULL)
{
	const u64 difference = (u64)a - b - borrow;

	if (out != NULL)
		*out = (u32)(difference >> 32 & 1);
	return (u32)difference;
}

/* ---- bits ---- */

/* Byte i of the result is the one of b:a that nibble i of c names; its bit 3: only the sign. */
static inline u32
prmt(u32 a, u32 b, u32 c)
{
	const u64 both = (u64)b << 32 | a;
	u32 r = 0;

	for (int i = 0; i < 4; i++) {
		const u32 name = c >> 4 * i & 15;
		u32 byte = (u32)(both >> 8 * (name & 7)) & 255;

		if (name & 8)
			byte = byte & 128 ? 255 : 0;
		r |= byte << 8 * i;
	}
	return r;
}

/* The lowest bits of a, put over those of b that begin at bit `at` */
template <class T>
static inline T
bfi(T a, T b, u32 at, u32 length)
{
	constexpr u32 width = sizeof(T) * 8;
	const u32 from = at & 255, n = length & 255;

	if (from >= width || n == 0)
		return b;
	const T ones = n >= width ? ~(T)0 : ((T)1 << n) - 1;
	return (b & ~(ones << from)) | (a & ones) << from;
}

template <class T> static inline u32 popc(T x) { return (u32)__builtin_popcountll(x); }

template <class T>
static inline u32
clz(T x)
{
	return x == 0 ? sizeof(T) * 8 : (u32)__builtin_clzll(x) - (64 - sizeof(T) * 8);
}

template <class T>
static inline T
brev(T x)
{
	T r = 0;

	for (unsigned i = 0; i < sizeof(T) * 8; i++)
		r |= (x >> i & 1) << (sizeof(T) * 8 - 1 - i);
	return r;
}

static inline u32 bfind_shiftamt(u32 x) { return x == 0 ? 0xffffffffu : clz(x); }

} // namespace ptx

#endif
