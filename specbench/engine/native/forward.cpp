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

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "attention.h"
#include "product.h"

namespace {

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

// All layers over rows: x [R, hidden] is the residual stream; `capture[i]` is the place of the
// stream before layer i among the features, -1 for none.
void run_layers(const Model& m, const Rows& rows, const i64* tokens, float* x, float* features,
                i64 feature_stride, const i64* capture, float* buffer) {
    const i64 count = rows.lanes * rows.rows, hidden = m.hidden;
    const Work work(m, count, buffer);
    for (i64 r = 0; r < count; r++)
        std::memcpy(x + r * hidden, m.embedding + tokens[r] * hidden, hidden * sizeof(float));
    for (i64 i = 0; i <= m.layers; i++) {
        if (features && capture[i] >= 0)
            for (i64 r = 0; r < count; r++)
                std::memcpy(features + r * feature_stride + capture[i] * hidden, x + r * hidden,
                            hidden * sizeof(float));
        if (i == m.layers) break;
        norm(x, count, hidden, m.layer[i].input_gain, m.eps, work.normed);
        product(m.layer[i].qkv, work.normed, count, nullptr, work.qkv);
        remember(m, rows, i, work.qkv);
        finish(m, rows, i, work.qkv, work, x);
    }
}

// The best of scores, ties to the lowest; -1 when one of them is not finite.
i64 best_of(const float* scores, i64 count) {
    __m256 most = _mm256_set1_ps(-INFINITY), zeros = _mm256_setzero_ps();
    float high = -INFINITY, zero = 0.0f;
    i64 i = 0;
    for (; i + LANES <= count; i += LANES) {
        const __m256 part = _mm256_loadu_ps(scores + i);
        most = _mm256_max_ps(most, part);
        zeros = _mm256_fmadd_ps(part, _mm256_setzero_ps(), zeros);  // NaN from NaN and infinity
    }
    for (; i < count; i++) high = std::max(high, scores[i]), zero += scores[i] * 0.0f;
    float parts[LANES];
    _mm256_storeu_ps(parts, most);
    for (const float part : parts) high = std::max(high, part);
    if (sum8(zeros) + zero != 0.0f) return -1;
    for (i = 0; scores[i] != high; i++) {}
    return i;
}

// A row's lane, the slot that it fills there, and its position.
struct Spot { i64 lane, slot, position; };

// Rows in spots of a cache: rotations and places, as `Rows` wants them.
struct Spots {
    std::vector<Spot> list;
    std::vector<float> turns;
    std::vector<i64> places;

    // `table` has caches and the rotations of position 0.
    Rows rows(const Model& m, const Rows& table, i64 lanes) {
        const i64 count = static_cast<i64>(list.size()), dim = m.head_dim;
        turns.resize(2 * count * dim), places.resize(count * m.kv_heads);
        for (i64 r = 0; r < count; r++) {
            const Spot& spot = list[r];
            std::memcpy(&turns[r * dim], table.turn_q + spot.position * dim, dim * sizeof(float));
            std::memcpy(&turns[(count + r) * dim], table.turn_k + spot.position * dim,
                        dim * sizeof(float));
            for (i64 h = 0; h < m.kv_heads; h++)
                places[r * m.kv_heads + h] =
                    (spot.lane * m.kv_heads + h) * (table.head_stride / dim) + spot.slot;
        }
        Rows rows = table;
        rows.lanes = lanes, rows.rows = count / lanes, rows.places = places.data();
        rows.turn_q = turns.data(), rows.turn_k = turns.data() + count * dim;
        rows.turn_q_stride = rows.turn_k_stride = dim;
        return rows;
    }
};

}  // namespace

extern "C" {

i64 work_floats(const Model* m, i64 rows, i64 columns) {
    const i64 row = m->hidden + qkv_width(*m) + m->heads * m->head_dim + 2 * m->inner;
    return rows * row + attention_floats(*m, rows, columns);
}

void multiply(const Matrix* m, const float* x, i64 rows, float* out) {
    product(*m, x, rows, nullptr, out);
}

void target_forward(const Model* m, const Rows* rows, const i64* tokens, float* x, float* features,
                    i64 feature_stride, const i64* capture, float* buffer) {
    run_layers(*m, *rows, tokens, x, features, feature_stride, capture, buffer);
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

// All nodes of B drafted trees (T each, chains without `depths` and `sight`), with scores of the
// last `scored` rows and the best token of each, -1 for scores that are not finite. Lane b has
// starts[b] columns.
void target_nodes(const Model* m, const Rows* table, const i64* starts, const i64* tokens,
                  const i64* depths, const bool* sight, i64 sight_lane, float* x, float* features,
                  i64 feature_stride, const i64* capture, i64 scored, float* logits, i64* best,
                  float* buffer) {
    const i64 lanes = table->lanes, nodes = table->rows, vocab = m->head.out;
    static thread_local Spots spots;
    spots.list.clear();
    i64 seen = 0;
    for (i64 b = 0; b < lanes; b++) {
        for (i64 t = 0; t < nodes; t++)
            spots.list.push_back({b, starts[b] + t, starts[b] + (depths ? depths[b * nodes + t] : t)});
        seen = std::max(seen, starts[b] + nodes);
    }
    Rows rows = spots.rows(*m, *table, lanes);
    rows.seen = seen, rows.starts = starts, rows.sight = sight, rows.sight_lane = sight_lane;
    run_layers(*m, rows, tokens, x, features, feature_stride, capture, buffer);
    head_scores(m, x + (lanes * nodes - scored) * m->hidden, scored, buffer, logits);
    for (i64 r = 0; r < scored; r++) best[r] = best_of(logits + r * vocab, vocab);
}

// How a draft hands on what it computes: the residual is the normed state; the next state is the
// normed output.
struct Habits { i64 normed_residual, normed_state; };

// A chain for each lane: token 0 is the root, token 1 the first guess, and `steps` - 1 forwards
// find the rest of tokens [B, stride]; `ids` are the target's ids of the draft's. Lane b has starts[b] columns and the recurrent state b.
void draft_chain(const Model* m, const Rows* table, const Habits* habits, const i64* starts,
                 i64 steps, const i64* roots, const i64* firsts, i64 first_stride, i64* tokens,
                 i64 stride, const float* states, const i64* ids, float* logits, float* buffer) {
    const i64 lanes = table->lanes, hidden = m->hidden, width = qkv_width(*m);
    static thread_local Spots spots;
    std::vector<i64> seen(lanes), token(lanes);
    float *state = buffer, *normed = state + lanes * hidden, *qkv = normed + lanes * hidden;
    float* room = qkv + lanes * width;
    std::memcpy(state, states, lanes * hidden * sizeof(float));
    for (i64 b = 0; b < lanes; b++)
        tokens[b * stride] = roots[b], tokens[b * stride + 1] = firsts[b * first_stride];
    for (i64 step = 1; step < steps; step++) {
        spots.list.clear();
        i64 most = 0;
        for (i64 b = 0; b < lanes; b++) {
            const i64 at = starts[b] + step - 1;
            spots.list.push_back({b, at, at});
            most = std::max(most, seen[b] = at + 1);
            token[b] = tokens[b * stride + step];
        }
        Rows rows = spots.rows(*m, *table, lanes);
        rows.seen = most, rows.lane_seen = seen.data();
        draft_remember(m, &rows, token.data(), state, normed, qkv);
        if (habits->normed_residual) std::memcpy(state, normed, lanes * hidden * sizeof(float));
        draft_guess(m, &rows, qkv, state, normed, logits, room);
        if (habits->normed_state) std::memcpy(state, normed, lanes * hidden * sizeof(float));
        for (i64 b = 0; b < lanes; b++) {
            const float* row = logits + b * m->head.out;
            tokens[b * stride + step + 1] = ids[std::max<i64>(best_of(row, m->head.out), 0)];
        }
    }
}

// Rows of (token, true feature) for lanes first_lane ..: counts[b] rows from slot starts[b] on,
// packed one lane after another in `tokens` and `picked` (rows of the features). With `logits`
// [B, Vd] the last row of each lane guesses: its recurrent state and best token are left as well.
void draft_extend(const Model* m, const Matrix* fc, const Rows* table, const Habits* habits,
                  i64 first_lane, const i64* starts, const i64* counts, const i64* tokens,
                  const i64* picked, const float* features, i64 feature_stride, float* states,
                  i64* firsts, i64 first_stride, const i64* ids, float* logits, float* buffer) {
    const i64 lanes = table->lanes, hidden = m->hidden, width = qkv_width(*m);
    static thread_local Spots spots;
    static thread_local std::vector<float> room;
    spots.list.clear();
    for (i64 b = 0; b < lanes; b++)
        for (i64 j = 0; j < counts[b]; j++)
            spots.list.push_back({first_lane + b, starts[b] + j, starts[b] + j});
    const i64 count = static_cast<i64>(spots.list.size());
    room.resize(count * (fc->in + 2 * hidden + width));
    float *vectors = room.data(), *state = vectors + count * fc->in;
    float *normed = state + count * hidden, *qkv = normed + count * hidden;
    for (i64 r = 0; r < count; r++)
        std::memcpy(vectors + r * fc->in, features + picked[r] * feature_stride,
                    fc->in * sizeof(float));
    product(*fc, vectors, count, nullptr, state);
    const Rows kept = spots.rows(*m, *table, 1);
    draft_remember(m, &kept, tokens, state, normed, qkv);
    if (!logits) return;
    std::vector<i64> seen(lanes);
    std::vector<Spot> last;
    i64 most = 0;
    for (i64 b = 0, row = -1; b < lanes; b++) {  // the last row of each lane moves to row b
        row += counts[b];
        last.push_back(spots.list[row]);
        most = std::max(most, seen[b] = starts[b] + counts[b]);
        std::memmove(qkv + b * width, qkv + row * width, width * sizeof(float));
        std::memcpy(states + b * hidden, (habits->normed_residual ? normed : state) + row * hidden,
                    hidden * sizeof(float));
    }
    spots.list = last;
    Rows rows = spots.rows(*m, *table, lanes);
    rows.keys += first_lane * m->kv_heads * table->head_stride;
    rows.values += first_lane * m->kv_heads * table->head_stride;
    rows.seen = most, rows.lane_seen = seen.data();
    draft_guess(m, &rows, qkv, states, normed, logits, buffer);
    if (habits->normed_state) std::memcpy(states, normed, lanes * hidden * sizeof(float));
    for (i64 b = 0; b < lanes; b++)
        firsts[b * first_stride] =
            ids[std::max<i64>(best_of(logits + b * m->head.out, m->head.out), 0)];
}

}  // extern "C"
