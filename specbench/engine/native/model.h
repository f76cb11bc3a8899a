// What Python fills in (calls.py): a model's weights, and where the rows of a forward stand.

#pragma once

#include "vectors.h"

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
};

// Where the rows of a forward stand: B lanes of T rows. A lane's rows see its columns up to `seen`
// (`lane_seen[b]` where given) that the mask, if there is one, does not hide. With `starts`, row t
// of lane b sees starts[b] columns and of the T behind them those that `sight` [T, T] marks, or
// the first t + 1 without it.
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
    const i64* starts;
    const bool* sight;
    i64 sight_lane;  // marks from lane to lane; 0 when all lanes share them
};

}  // extern "C"

namespace {

inline i64 qkv_width(const Model& m) { return (m.heads + 2 * m.kv_heads) * m.head_dim; }

}  // namespace
