// Forward passes of Llama layers for few rows, on one thread of a CPU with AVX2, FMA and F16C.
//
// One call runs all layers: a step of a small model is bound by the cost of calls, not by memory.
// Everything a row passes through is computed in an order that does not depend on the other rows:
// a product sums over its input index by index, attention over visible columns one by one. So
// K + 1 rows verified together are bit for bit K + 1 rows decoded one at a time, and a batch is
// bit for bit its lanes alone.
//
// Python (calls.py, models.py) owns all memory and fills these structs. Queries and keys are in
// adjacent pairs (models/layers.py), keys and values in slots [lane, head, slot, dim].

#include <immintrin.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#define UNROLLED _Pragma("GCC unroll 16")  // sums that stay in registers need it

namespace {

using i64 = std::int64_t;
constexpr i64 LANES = 8;    // floats of a vector register
constexpr i64 PANEL = 16;   // outputs of a panel: two registers
constexpr i64 AHEAD = 4096;  // bytes that a stream of weights is prefetched ahead

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

extern "C" {

// Weights [out, in] as panels [out / 16, in, 16], zero-filled at the end.
struct Matrix {
    const void* panels;
    i64 out, in, storage;
};

struct Layer {
    const float* input_gain;
    const float* post_gain;
    Matrix qkv, out, gate_up, down;
};

struct Model {
    i64 hidden, inner, heads, kv_heads, head_dim, layers;
    double eps;
    const Layer* layer;
    const float* embedding;  // target: [V, hidden]; draft: the token's part of qkv, [V, qkv]
    const float* final_gain;
    Matrix head;
    const i64* target_ids;  // draft: id in the target's vocabulary of each draft id
};

// Where the rows of a forward stand: B lanes of T rows. A lane's rows see its columns up to `seen`
// (`lane_seen[b]` where given) that the mask, if there is one, does not hide.
struct Rows {
    i64 lanes, rows;
    const float *turn_q, *turn_k;    // (cos, sin) pairs of each row, queries' scaled
    i64 turn_q_stride, turn_k_stride;  // floats from row to row; 0 when all share one
    float *keys, *values;            // first column of layer 0, lane 0, head 0
    i64 layer_stride, head_stride;
    const i64* places;  // [R, kv_heads]: column counted from `keys` that a row writes; or null and
    i64 first;          // rows go to columns first, first + 1, ... of the only lane
    i64 seen;
    const i64* lane_seen;
    const float* mask;  // 0 or -inf
    i64 mask_lane, mask_row;
};

}  // extern "C"

namespace {

i64 qkv_width(const Model& m) { return (m.heads + 2 * m.kv_heads) * m.head_dim; }

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
            _mm_prefetch(reinterpret_cast<const char*>(at) + AHEAD, _MM_HINT_T0);
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

void norm(const float* x, i64 rows, i64 width, const float* gain, double eps, float* out) {
    for (i64 r = 0; r < rows; r++, x += width, out += width) {
        __m256 squares = _mm256_setzero_ps();
        for (i64 i = 0; i < width; i += LANES) {
            const __m256 v = _mm256_loadu_ps(x + i);
            squares = _mm256_fmadd_ps(v, v, squares);
        }
        const __m256 scale =
            _mm256_set1_ps(1.0f / std::sqrt(sum8(squares) / width + static_cast<float>(eps)));
        for (i64 i = 0; i < width; i += LANES)
            _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_mul_ps(_mm256_loadu_ps(x + i), scale),
                                                    _mm256_loadu_ps(gain + i)));
    }
}

// Turn neighbouring pairs of a head by (cos, sin).
void rotate(const float* x, const float* turn, i64 width, float* out) {
    for (i64 i = 0; i < width; i += LANES) {
        const __m256 v = _mm256_loadu_ps(x + i), t = _mm256_loadu_ps(turn + i);
        const __m256 crossed = _mm256_mul_ps(_mm256_permute_ps(v, 0xB1), _mm256_movehdup_ps(t));
        _mm256_storeu_ps(out + i, _mm256_fmaddsub_ps(v, _mm256_moveldup_ps(t), crossed));
    }
}

// Rotate the rows' new keys and put keys and values into their columns.
void remember(const Model& m, const Rows& rows, i64 layer, const float* qkv) {
    const i64 dim = m.head_dim, width = qkv_width(m);
    for (i64 r = 0; r < rows.lanes * rows.rows; r++)
        for (i64 h = 0; h < m.kv_heads; h++) {
            const float* key = qkv + r * width + (m.heads + h) * dim;
            const i64 column = rows.places ? rows.places[r * m.kv_heads + h] * dim
                                           : h * rows.head_stride + (rows.first + r) * dim;
            const i64 at = layer * rows.layer_stride + column;
            rotate(key, rows.turn_k + r * rows.turn_k_stride, dim, rows.keys + at);
            std::memcpy(rows.values + at, key + m.kv_heads * dim, dim * sizeof(float));
        }
}

// Scores of the visible columns, packed together with their numbers; returns how many.
i64 score(const float* query, const float* keys, const float* mask, i64 seen, i64 dim,
          float* scores, std::int32_t* columns) {
    i64 count = 0;
    for (i64 c = 0; c < seen; c++) {
        if (mask && mask[c] != 0.0f) continue;
        __m256 even = _mm256_setzero_ps(), odd = _mm256_setzero_ps();
        const float* key = keys + c * dim;
        i64 i = 0;
        for (; i + 2 * LANES <= dim; i += 2 * LANES) {
            even = _mm256_fmadd_ps(_mm256_loadu_ps(query + i), _mm256_loadu_ps(key + i), even);
            odd = _mm256_fmadd_ps(_mm256_loadu_ps(query + i + LANES),
                                  _mm256_loadu_ps(key + i + LANES), odd);
        }
        if (i < dim)
            even = _mm256_fmadd_ps(_mm256_loadu_ps(query + i), _mm256_loadu_ps(key + i), even);
        columns[count] = static_cast<std::int32_t>(c);
        scores[count++] = sum8(_mm256_add_ps(even, odd));
    }
    return count;
}

// Turn scores into unscaled probabilities and return the inverse of their sum. The buffer has room
// for the last, partial register, which is filled with what adds nothing.
float exponents(float* scores, i64 count) {
    _mm256_storeu_ps(scores + count, _mm256_set1_ps(-INFINITY));
    __m256 most = _mm256_loadu_ps(scores);
    for (i64 c = LANES; c < count; c += LANES)
        most = _mm256_max_ps(most, _mm256_loadu_ps(scores + c));
    most = _mm256_max_ps(most, _mm256_permute2f128_ps(most, most, 1));
    most = _mm256_max_ps(most, _mm256_permute_ps(most, 0x4E));
    most = _mm256_max_ps(most, _mm256_permute_ps(most, 0xB1));
    __m256 total = _mm256_setzero_ps();
    for (i64 c = 0; c < count; c += LANES) {
        const __m256 part = exp8(_mm256_sub_ps(_mm256_loadu_ps(scores + c), most));
        _mm256_storeu_ps(scores + c, part);
        total = _mm256_add_ps(total, part);
    }
    return 1.0f / sum8(total);
}

// Weighted sum of PARTS registers of the values of the visible columns.
template <int PARTS>
void mix(const float* weights, const std::int32_t* columns, i64 count, const float* values, i64 dim,
         float scale, float* out) {
    __m256 sum[PARTS];
    for (auto& part : sum) part = _mm256_setzero_ps();
    for (i64 c = 0; c < count; c++) {
        const __m256 weight = _mm256_broadcast_ss(weights + c);
        const float* value = values + columns[c] * dim;
        for (int p = 0; p < PARTS; p++)
            sum[p] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(value + p * LANES), sum[p]);
    }
    for (int p = 0; p < PARTS; p++)
        _mm256_storeu_ps(out + p * LANES, _mm256_mul_ps(sum[p], _mm256_set1_ps(scale)));
}

// Attention of all rows over their lanes' columns: out [R, heads · dim].
void attend(const Model& m, const Rows& rows, i64 layer, const float* qkv, float* scores,
            float* out) {
    const i64 dim = m.head_dim, width = qkv_width(m), group = m.heads / m.kv_heads;
    float* query = scores + rows.seen + LANES;
    auto* columns = reinterpret_cast<std::int32_t*>(query + dim);
    for (i64 r = 0; r < rows.lanes * rows.rows; r++) {
        const i64 lane = r / rows.rows, seen = rows.lane_seen ? rows.lane_seen[lane] : rows.seen;
        const float* mask = nullptr;
        if (rows.mask) mask = rows.mask + lane * rows.mask_lane + r % rows.rows * rows.mask_row;
        for (i64 h = 0; h < m.heads; h++) {
            const i64 at = layer * rows.layer_stride +
                           (lane * m.kv_heads + h / group) * rows.head_stride;
            rotate(qkv + r * width + h * dim, rows.turn_q + r * rows.turn_q_stride, dim, query);
            const i64 count = score(query, rows.keys + at, mask, seen, dim, scores, columns);
            const float scale = exponents(scores, count);
            float* head = out + (r * m.heads + h) * dim;
            const float* values = rows.values + at;
            i64 i = 0;
            for (; i + 8 * LANES <= dim; i += 8 * LANES)
                mix<8>(scores, columns, count, values + i, dim, scale, head + i);
            for (; i < dim; i += LANES)
                mix<1>(scores, columns, count, values + i, dim, scale, head + i);
        }
    }
}

// silu(gate) · up, written over the front of the rows' gate and up: out [R, inner], packed.
void activate(float* gate_up, i64 rows, i64 inner) {
    float* out = gate_up;
    for (i64 r = 0; r < rows; r++, gate_up += 2 * inner, out += inner)
        for (i64 i = 0; i < inner; i += LANES) {
            const __m256 gate = _mm256_loadu_ps(gate_up + i);
            const __m256 one = _mm256_set1_ps(1.0f);
            const __m256 below = _mm256_add_ps(one, exp8(_mm256_sub_ps(_mm256_setzero_ps(), gate)));
            _mm256_storeu_ps(out + i, _mm256_mul_ps(_mm256_div_ps(gate, below),
                                                    _mm256_loadu_ps(gate_up + inner + i)));
        }
}

// Room for one forward, cut from a buffer of `work_floats`.
struct Work {
    float *normed, *qkv, *mixed, *gate_up, *scores;
    Work(const Model& m, i64 rows, float* at) {
        normed = at;
        qkv = normed + rows * m.hidden;
        mixed = qkv + rows * qkv_width(m);
        gate_up = mixed + rows * m.heads * m.head_dim;
        scores = gate_up + rows * 2 * m.inner;
    }
};

// Attention and feed-forward of one layer, added to x; keys are stored, queries wait in qkv.
void finish(const Model& m, const Rows& rows, i64 index, const float* qkv, const Work& work,
            float* x) {
    const Layer& layer = m.layer[index];
    const i64 count = rows.lanes * rows.rows;
    attend(m, rows, index, qkv, work.scores, work.mixed);
    product(layer.out, work.mixed, count, x, x);
    norm(x, count, m.hidden, layer.post_gain, m.eps, work.normed);
    product(layer.gate_up, work.normed, count, nullptr, work.gate_up);
    activate(work.gate_up, count, m.inner);
    product(layer.down, work.gate_up, count, x, x);
}

}  // namespace

extern "C" {

i64 work_floats(const Model* m, i64 rows, i64 columns) {
    const i64 row = m->hidden + qkv_width(*m) + m->heads * m->head_dim + 2 * m->inner;
    return rows * row + 2 * columns + 2 * LANES + m->head_dim;
}

void multiply(const Matrix* m, const float* x, i64 rows, float* out) {
    product(*m, x, rows, nullptr, out);
}

// All layers of a target: x [R, hidden] is the residual stream; `capture[i]` is the place of the
// stream before layer i among the features, -1 for none.
void target_forward(const Model* m, const Rows* rows, const i64* tokens, float* x, float* features,
                    i64 feature_stride, const i64* capture, float* buffer) {
    const i64 count = rows->lanes * rows->rows, hidden = m->hidden;
    const Work work(*m, count, buffer);
    for (i64 r = 0; r < count; r++)
        std::memcpy(x + r * hidden, m->embedding + tokens[r] * hidden, hidden * sizeof(float));
    for (i64 i = 0; i <= m->layers; i++) {
        if (features && capture[i] >= 0)
            for (i64 r = 0; r < count; r++)
                std::memcpy(features + r * feature_stride + capture[i] * hidden, x + r * hidden,
                            hidden * sizeof(float));
        if (i == m->layers) break;
        norm(x, count, hidden, m->layer[i].input_gain, m->eps, work.normed);
        product(m->layer[i].qkv, work.normed, count, nullptr, work.qkv);
        remember(*m, *rows, i, work.qkv);
        finish(*m, *rows, i, work.qkv, work, x);
    }
}

// Scores of final states; `normed` [R, hidden] is kept for those who need it.
void head_scores(const Model* m, const float* x, i64 rows, float* normed, float* out) {
    norm(x, rows, m->hidden, m->final_gain, m->eps, normed);
    product(m->head, normed, rows, nullptr, out);
}

// Keys and values of draft rows; leaves the normed states and all of qkv.
void draft_remember(const Model* m, const Rows* rows, const i64* tokens, const float* hidden,
                    float* normed, float* qkv) {
    const i64 count = rows->lanes * rows->rows, width = qkv_width(*m);
    norm(hidden, count, m->hidden, m->layer[0].input_gain, m->eps, normed);
    for (i64 r = 0; r < count; r++)
        std::memcpy(qkv + r * width, m->embedding + tokens[r] * width, width * sizeof(float));
    product(m->layer[0].qkv, normed, count, qkv, qkv);
    remember(*m, *rows, 0, qkv);
}

// Finish draft rows: x [R, hidden] is the residual and becomes the layer's output.
void draft_guess(const Model* m, const Rows* rows, const float* qkv, float* x, float* normed,
                 float* logits, float* buffer) {
    finish(*m, *rows, 0, qkv, Work(*m, rows->lanes * rows->rows, buffer), x);
    head_scores(m, x, rows->lanes * rows->rows, normed, logits);
}

// All steps of a chain after the first token, for lanes 0..B-1. `table` gives caches and rotations
// of position 0; lane b has starts[b] columns before it, and its token j is tokens[b · stride + j].
// `state` [B, hidden] is read and overwritten. Flags: the residual is the normed state, the next
// state is the normed output.
void draft_chain(const Model* m, const Rows* table, const i64* starts, i64 steps, i64* tokens,
                 i64 stride, float* state, i64 normed_residual, i64 normed_state, float* logits,
                 float* buffer) {
    const i64 lanes = table->lanes, hidden = m->hidden, width = qkv_width(*m), dim = m->head_dim;
    std::vector<i64> places(lanes * m->kv_heads), seen(lanes), token(lanes);
    float* normed = buffer;
    float* qkv = normed + lanes * hidden;
    float* turn_q = qkv + lanes * width;
    float* turn_k = turn_q + lanes * dim;
    Rows rows = *table;
    rows.turn_q = turn_q, rows.turn_k = turn_k;
    rows.turn_q_stride = rows.turn_k_stride = dim;
    rows.places = places.data(), rows.lane_seen = seen.data();
    for (i64 step = 1; step < steps; step++) {
        for (i64 b = 0; b < lanes; b++) {
            const i64 at = starts[b] + step - 1;
            seen[b] = at + 1;
            rows.seen = std::max(rows.seen, seen[b]);
            token[b] = tokens[b * stride + step];
            std::memcpy(turn_q + b * dim, table->turn_q + at * dim, dim * sizeof(float));
            std::memcpy(turn_k + b * dim, table->turn_k + at * dim, dim * sizeof(float));
            for (i64 h = 0; h < m->kv_heads; h++)
                places[b * m->kv_heads + h] = (b * m->kv_heads + h) * table->head_stride / dim + at;
        }
        draft_remember(m, &rows, token.data(), state, normed, qkv);
        if (normed_residual) std::memcpy(state, normed, lanes * hidden * sizeof(float));
        draft_guess(m, &rows, qkv, state, normed, logits, turn_k + lanes * dim);
        if (normed_state) std::memcpy(state, normed, lanes * hidden * sizeof(float));
        for (i64 b = 0; b < lanes; b++) {
            const float* row = logits + b * m->head.out;
            const i64 best = std::max_element(row, row + m->head.out) - row;
            tokens[b * stride + step + 1] = m->target_ids[best];
        }
    }
}

}  // extern "C"
