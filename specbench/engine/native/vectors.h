// Eight floats at a time: loads that widen, sums across a register, e^x.

#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>

#define UNROLLED _Pragma("GCC unroll 16")  // sums that stay in registers need it

namespace {

using i64 = std::int64_t;
constexpr i64 LANES = 8;  // floats of a vector register

enum Storage : i64 { FLOAT32 = 0, FLOAT16 = 1, BFLOAT16 = 2 };

struct F32 { float bits; };
struct F16 { std::uint16_t bits; };
struct BF16 { std::uint16_t bits; };

inline __m256 load8(const F32* w) { return _mm256_loadu_ps(&w->bits); }
inline __m256 load8(const F16* w) {
    return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w)));
}
inline __m256 load8(const BF16* w) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(w));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}

inline float sum8(__m256 v) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

// The sums of eight registers as one, each in the same order whatever its place.
inline __m256 sums8(const __m256 (&v)[8]) {
    const __m256 low = _mm256_hadd_ps(_mm256_hadd_ps(v[0], v[1]), _mm256_hadd_ps(v[2], v[3]));
    const __m256 high = _mm256_hadd_ps(_mm256_hadd_ps(v[4], v[5]), _mm256_hadd_ps(v[6], v[7]));
    return _mm256_add_ps(_mm256_permute2f128_ps(low, high, 0x20),
                         _mm256_permute2f128_ps(low, high, 0x31));
}

// e^x by Cephes' degree-5 polynomial on [-ln2/2, ln2/2]; relative error below 2e-7. NaN stays NaN.
inline __m256 exp8(__m256 x) {
    x = _mm256_max_ps(_mm256_set1_ps(-87.3f), x);  // max and min return their second operand
    x = _mm256_min_ps(_mm256_set1_ps(88.3f), x);   // when either is NaN
    const __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)),
                                     _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    x = _mm256_fnmadd_ps(n, _mm256_set1_ps(0.693359375f), x);
    x = _mm256_fnmadd_ps(n, _mm256_set1_ps(-2.12194440e-4f), x);
    __m256 p = _mm256_set1_ps(1.9875691500e-4f);
    for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f,
                          5.0000001201e-1f})
        p = _mm256_fmadd_ps(p, x, _mm256_set1_ps(c));
    p = _mm256_add_ps(_mm256_fmadd_ps(p, _mm256_mul_ps(x, x), x), _mm256_set1_ps(1.0f));
    const __m256i power = _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));
    return _mm256_mul_ps(p, _mm256_castsi256_ps(_mm256_slli_epi32(power, 23)));
}

}  // namespace
