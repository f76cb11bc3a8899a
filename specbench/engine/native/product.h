// Products of few rows with a weight, which is read in the order in which it lies in memory.

#pragma once

#include <algorithm>

#include "model.h"

namespace {

constexpr i64 PANEL = 16;    // outputs of a panel: two registers
constexpr i64 AHEAD = 32768;  // bytes that a stream of weights is fetched ahead; half for several

// Sums of ROWS rows with PANELS neighbouring panels, over the input in order.
template <class W, int ROWS, int PANELS>
void tile(const W* w, i64 in, const float* x, const float* base, float* out, i64 width, i64 room) {
    __m256 sum[ROWS][2 * PANELS];
    UNROLLED for (int r = 0; r < ROWS; r++)
        UNROLLED for (int p = 0; p < 2 * PANELS; p++) sum[r][p] = _mm256_setzero_ps();
    for (i64 k = 0; k < in; k++) {
        __m256 weights[2 * PANELS];
        UNROLLED for (int p = 0; p < PANELS; p++) {
            const W* at = w + (p * in + k) * PANEL;
            _mm_prefetch(reinterpret_cast<const char*>(at) + AHEAD / std::min(PANELS, 2), _MM_HINT_T1);
            weights[2 * p] = load8(at);
            weights[2 * p + 1] = load8(at + LANES);
        }
        UNROLLED for (int r = 0; r < ROWS; r++) {
            const __m256 value = _mm256_broadcast_ss(x + r * in + k);
            UNROLLED for (int p = 0; p < 2 * PANELS; p++)
                sum[r][p] = _mm256_fmadd_ps(value, weights[p], sum[r][p]);
        }
    }
    UNROLLED for (int r = 0; r < ROWS; r++) {
        float whole[PANELS * PANEL];
        UNROLLED for (int p = 0; p < 2 * PANELS; p++)
            _mm256_storeu_ps(whole + p * LANES, sum[r][p]);
        const i64 count = std::min<i64>(room, PANELS * PANEL);
        for (i64 j = 0; j < count; j++)
            out[r * width + j] = base ? base[r * width + j] + whole[j] : whole[j];
    }
}

template <class W, int ROWS, int PANELS>
void rows_of_tiles(const Matrix& m, const float* x, const float* base, float* out) {
    const W* w = static_cast<const W*>(m.panels);
    const i64 count = (m.out + PANEL - 1) / PANEL;
    i64 p = 0;
    for (; p + PANELS <= count; p += PANELS)
        tile<W, ROWS, PANELS>(w + p * m.in * PANEL, m.in, x, base ? base + p * PANEL : nullptr,
                              out + p * PANEL, m.out, m.out - p * PANEL);
    for (; p < count; p++)
        tile<W, ROWS, 1>(w + p * m.in * PANEL, m.in, x, base ? base + p * PANEL : nullptr,
                         out + p * PANEL, m.out, m.out - p * PANEL);
}

// out = base + x Wᵀ for rows in blocks that fill the registers. A block of six reads all weights;
// few blocks follow one another, and a matrix of this size is then still in a near cache.
template <class W>
void product_of(const Matrix& m, const float* x, i64 rows, const float* base, float* out) {
    const i64 blocks = (rows + 5) / 6;
    for (i64 block = 0, row = 0; block < blocks; block++) {
        const i64 count = (rows - row + blocks - block - 1) / (blocks - block);
        const float* from = x + row * m.in;
        const float* add = base ? base + row * m.out : nullptr;
        float* to = out + row * m.out;
        switch (count) {
            case 1: rows_of_tiles<W, 1, 4>(m, from, add, to); break;
            case 2: rows_of_tiles<W, 2, 2>(m, from, add, to); break;
            case 3: rows_of_tiles<W, 3, 1>(m, from, add, to); break;
            case 4: rows_of_tiles<W, 4, 1>(m, from, add, to); break;
            case 5: rows_of_tiles<W, 5, 1>(m, from, add, to); break;
            default: rows_of_tiles<W, 6, 1>(m, from, add, to); break;
        }
        row += count;
    }
}

void product(const Matrix& m, const float* x, i64 rows, const float* base, float* out) {
    switch (m.storage) {
        case FLOAT32: product_of<F32>(m, x, rows, base, out); break;
        case FLOAT16: product_of<F16>(m, x, rows, base, out); break;
        default: product_of<BF16>(m, x, rows, base, out); break;
    }
}

}  // namespace
