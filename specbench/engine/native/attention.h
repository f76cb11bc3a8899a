// Attention of few rows over the columns that they see, a key head at a time.
//
// A column's score depends on the column and the query alone, and weighted values are added column
// by column in the order of the visible ones, so a row's result is that of the row on its own.

#pragma once

#include <algorithm>
#include <cstring>

#include "model.h"

namespace {

constexpr i64 TOGETHER = 8;  // rows that share one pass over keys and values
constexpr i64 CHUNK = 32;    // columns of values that stay in the nearest cache for all queries

// Turn neighbouring pairs of a head by (cos, sin).
inline void rotate(const float* x, const float* turn, i64 width, float* out) {
    for (i64 i = 0; i < width; i += LANES) {
        const __m256 v = _mm256_loadu_ps(x + i), t = _mm256_loadu_ps(turn + i);
        const __m256 crossed = _mm256_mul_ps(_mm256_permute_ps(v, 0xB1), _mm256_movehdup_ps(t));
        _mm256_storeu_ps(out + i, _mm256_fmaddsub_ps(v, _mm256_moveldup_ps(t), crossed));
    }
}

// What a row sees: `count` columns, the first `lead` of all and then those listed in `others`.
struct Sight {
    i64 lead, count;
    std::int32_t* others;
};

inline Sight masked(const float* mask, i64 seen, std::int32_t* others) {
    i64 lead = mask ? 0 : seen / LANES * LANES, found = 0;
    const __m256 none = _mm256_setzero_ps();
    for (; lead + LANES <= seen; lead += LANES)
        if (_mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(mask + lead), none, _CMP_NEQ_UQ)))
            break;
    for (i64 c = lead; c < seen; c++)
        if (!mask || mask[c] == 0.0f) others[found++] = static_cast<std::int32_t>(c);
    return {lead, lead + found, others};
}

// Row t of a lane with `start` columns behind which its rows stand.
inline Sight structured(i64 start, i64 t, const bool* sight, std::int32_t* others) {
    const i64 sure = sight ? start : start + t + 1, lead = sure / LANES * LANES;
    i64 found = 0;
    for (i64 c = lead; c < sure; c++) others[found++] = static_cast<std::int32_t>(c);
    for (i64 j = 0; sight && j <= t; j++)
        if (sight[j]) others[found++] = static_cast<std::int32_t>(start + j);
    return {lead, lead + found, others};
}

inline Sight sight_of(const Rows& rows, i64 lane, i64 t, std::int32_t* others) {
    if (rows.starts) {
        const bool* sight = rows.sight;
        if (sight) sight += lane * rows.sight_lane + t * rows.rows;
        return structured(rows.starts[lane], t, sight, others);
    }
    const float* mask = rows.mask;
    if (mask) mask += lane * rows.mask_lane + t * rows.mask_row;
    return masked(mask, rows.lane_seen ? rows.lane_seen[lane] : rows.seen, others);
}

// Scores of eight columns.
inline __m256 score8(const float* query, const float* const (&key)[8], i64 dim) {
    __m256 sum[8];
    UNROLLED for (int c = 0; c < 8; c++) sum[c] = _mm256_setzero_ps();
    for (i64 i = 0; i < dim; i += LANES) {
        const __m256 part = _mm256_loadu_ps(query + i);
        UNROLLED for (int c = 0; c < 8; c++)
            sum[c] = _mm256_fmadd_ps(part, _mm256_loadu_ps(key[c] + i), sum[c]);
    }
    return sums8(sum);
}

// Turn scores into unscaled probabilities and return the inverse of their sum. The buffer has room
// for the last, partial register, which is filled with what adds nothing.
inline float exponents(float* scores, i64 count) {
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

// Add the weighted values of columns from..to, or of those that are listed, to PARTS registers.
template <int PARTS>
inline void mix_parts(const float* weights, const std::int32_t* listed, i64 from, i64 to,
                      const float* values, i64 dim, float* out) {
    __m256 sum[PARTS];
    UNROLLED for (int p = 0; p < PARTS; p++) sum[p] = _mm256_loadu_ps(out + p * LANES);
    for (i64 c = from; c < to; c++) {
        const __m256 weight = _mm256_broadcast_ss(weights + c);
        const float* value = values + (listed ? listed[c] : c) * dim;
        UNROLLED for (int p = 0; p < PARTS; p++)
            sum[p] = _mm256_fmadd_ps(weight, _mm256_loadu_ps(value + p * LANES), sum[p]);
    }
    UNROLLED for (int p = 0; p < PARTS; p++) _mm256_storeu_ps(out + p * LANES, sum[p]);
}

inline void mix(const float* weights, const std::int32_t* listed, i64 from, i64 to,
                const float* values, i64 dim, float* out) {
    i64 i = 0;
    for (; i + 8 * LANES <= dim; i += 8 * LANES)
        mix_parts<8>(weights, listed, from, to, values + i, dim, out + i);
    for (; i < dim; i += LANES) mix_parts<1>(weights, listed, from, to, values + i, dim, out + i);
}

// Bring floats into the second cache; an address that is not there does no harm.
inline void fetch(const float* from, i64 floats) {
    for (i64 i = 0; i < floats; i += 2 * LANES)
        _mm_prefetch(reinterpret_cast<const char*>(from + i), _MM_HINT_T1);
}

// The queries of up to TOGETHER rows of a lane that share a key head.
struct Queries {
    i64 rows, group, dim;
    Sight sights[TOGETHER];
    float* turned;  // [rows, group, dim]
    float* scores;  // [rows, group, stride]; the last of a stride keeps the scale
    i64 stride;
    float* out;  // [rows, width], `group` heads from here on
    i64 width;

    float* scores_of(i64 r, i64 g) const { return scores + (r * group + g) * stride; }
    const float* query(i64 r, i64 g) const { return turned + (r * group + g) * dim; }
    i64 widest() const {
        i64 lead = 0;
        for (i64 r = 0; r < rows; r++) lead = std::max(lead, sights[r].lead);
        return lead;
    }
};

// `soon` is what is read after this; it is fetched beside, as far as columns are walked.
inline void score(const Queries& q, const float* keys, const float* soon) {
    const float* key[8];
    for (i64 c = 0, end = q.widest(); c < end; c += LANES) {
        for (i64 j = 0; j < 8; j++) key[j] = keys + (c + j) * q.dim;
        fetch(soon + c * q.dim, LANES * q.dim);
        for (i64 r = 0; r < q.rows; r++) {
            if (c >= q.sights[r].lead) continue;
            for (i64 g = 0; g < q.group; g++)
                _mm256_storeu_ps(q.scores_of(r, g) + c, score8(q.query(r, g), key, q.dim));
        }
    }
    for (i64 r = 0; r < q.rows; r++) {
        const Sight& sight = q.sights[r];
        for (i64 c = sight.lead; c < sight.count; c += LANES) {
            for (i64 j = 0; j < 8; j++)
                key[j] = keys + sight.others[std::min(c + j, sight.count - 1) - sight.lead] * q.dim;
            for (i64 g = 0; g < q.group; g++)
                _mm256_storeu_ps(q.scores_of(r, g) + c, score8(q.query(r, g), key, q.dim));
        }
    }
}

inline void gather(const Queries& q, const float* values, const float* soon) {
    for (i64 r = 0; r < q.rows; r++)
        for (i64 g = 0; g < q.group; g++) {
            float* scores = q.scores_of(r, g);
            scores[q.stride - 1] = exponents(scores, q.sights[r].count);
            std::memset(q.out + r * q.width + g * q.dim, 0, q.dim * sizeof(float));
        }
    for (i64 c = 0, end = q.widest(); c < end; c += CHUNK) {
        fetch(soon + c * q.dim, CHUNK * q.dim);
        for (i64 r = 0; r < q.rows; r++)
            for (i64 g = 0; g < q.group; g++)
                mix(q.scores_of(r, g), nullptr, c, std::min(c + CHUNK, q.sights[r].lead), values,
                    q.dim, q.out + r * q.width + g * q.dim);
    }
    for (i64 r = 0; r < q.rows; r++)
        for (i64 g = 0; g < q.group; g++) {
            const Sight& sight = q.sights[r];
            const float* weights = q.scores_of(r, g);
            float* out = q.out + r * q.width + g * q.dim;
            mix(weights + sight.lead, sight.others, 0, sight.count - sight.lead, values, q.dim, out);
            const __m256 scale = _mm256_broadcast_ss(weights + q.stride - 1);
            for (i64 d = 0; d < q.dim; d += LANES)
                _mm256_storeu_ps(out + d, _mm256_mul_ps(_mm256_loadu_ps(out + d), scale));
        }
}

// Floats of working memory that `attend` needs.
inline i64 attention_floats(const Model& m, i64 rows, i64 columns) {
    const i64 group = m.heads / m.kv_heads, together = std::min(rows, TOGETHER);
    return together * (group * (m.head_dim + columns + 3 * LANES) + columns);
}

// Attention of all rows over their lanes' columns: out [R, heads · dim].
inline void attend(const Model& m, const Rows& rows, i64 layer, const float* qkv, float* room,
                   float* out) {
    const i64 dim = m.head_dim, width = qkv_width(m), seen = rows.seen;
    Queries q;
    q.group = m.heads / m.kv_heads, q.dim = dim, q.width = m.heads * dim;
    q.stride = seen + 2 * LANES;
    for (i64 lane = 0; lane < rows.lanes; lane++)
        for (i64 first = 0; first < rows.rows; first += TOGETHER) {
            q.rows = std::min(TOGETHER, rows.rows - first);
            q.turned = room, q.scores = q.turned + q.rows * q.group * dim;
            auto* others = reinterpret_cast<std::int32_t*>(q.scores + q.rows * q.group * q.stride);
            for (i64 r = 0; r < q.rows; r++, others += seen)
                q.sights[r] = sight_of(rows, lane, first + r, others);
            for (i64 h = 0; h < m.kv_heads; h++) {
                const i64 row = lane * rows.rows + first;
                const i64 at = layer * rows.layer_stride + (lane * m.kv_heads + h) * rows.head_stride;
                for (i64 r = 0; r < q.rows; r++)
                    for (i64 g = 0; g < q.group; g++)
                        rotate(qkv + (row + r) * width + (h * q.group + g) * dim,
                               rows.turn_q + (row + r) * rows.turn_q_stride, dim,
                               q.turned + (r * q.group + g) * dim);
                q.out = out + row * q.width + h * q.group * dim;
                score(q, rows.keys + at, rows.values + at);
                gather(q, rows.values + at, rows.keys + at + rows.head_stride);
            }
        }
}

}  // namespace
