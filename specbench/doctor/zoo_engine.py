"""Faults of the zoo that an engine makes, with files that are right: switches of ``engine.faults``.

Layers in words are those of the shipped pair: 8 layers, features of physical 2, 4 and 7.
"""

from __future__ import annotations

from specbench.doctor.zoo import Cause, Fault, cause
from specbench.doctor.zoo_edits import own_embedding

GRAPHS = cause("parity.graphs")


def _switch(
    name: str, failures: str, kind: str, shape: str, *causes: Cause, switch: str = ""
) -> Fault:
    return Fault(
        name=name,
        failures=tuple(failures.split()),
        kind=kind,
        shape=shape,
        causes=causes,
        switch=switch or name,
    )


ENGINE_FAULTS: tuple[Fault, ...] = (
    _switch("capture_default", "F1", "default layers", "first",
            Cause(code="engine.slots", says="default layers")),
    _switch("capture_plus_one", "F2", "layers one high", "first",
            Cause(code="engine.slots", says="all layers +1")),
    _switch("capture_minus_one", "F2", "layers one low", "first",
            Cause(code="engine.slots", says="all layers -1")),
    _switch("graph_default", "F4", "default layers in graphs", "cycle",
            Cause(code="engine.verify_slots", says="default layers at verify")),
    _switch("graph_default_replayed", "F4", "default layers in graphs", "graph", *GRAPHS),
    _switch("capture_embedding", "F5", "embedding for a layer", "first",
            Cause(code="engine.slots", says="the embedding instead of 2")),
    _switch("capture_reversed", "F6", "order of the layers", "first",
            Cause(code="engine.slots", says="order [7, 4, 2]")),
    _switch("lost_features", "F7", "features lost", "first", Cause(code="engine.features_lost")),
    _switch("lost_stages", "F37", "only the last stage captures", "first",
            Cause(code="engine.features_lost", says="layer 4")),
    _switch("fc_skipped", "F9", "fc skipped", "first", Cause(code="engine.use_fc")),
    _switch("stale_features", "F10", "stale feature buffer", "cycle",
            Cause(code="engine.features_stale")),
    _switch("stale_replayed", "F10", "stale feature buffer", "graph", *GRAPHS),
    _switch("direct_map", "F11", "d2t read as target ids", "one",
            Cause(code="engine.direct_map")),
    _switch("zero_map", "F12", "d2t missing or zero", "one", Cause(code="engine.zero_map")),
    _switch("norm_output", "F14", "norm_output", "tail", Cause(code="engine.norm_output")),
    _switch("norm_before_residual", "F15", "norm_before_residual", "first",
            Cause(code="engine.norm_before_residual")),
    Fault(
        name="embedding_shared", failures=("F18",), kind="embedding replaced", shape="flat",
        draft=own_embedding, share_embedding=True,
        causes=cause("engine.own_embedding", "the target's embedding"),
    ),
    _switch("theta", "F19", "rotation base", "flat", Cause(code="engine.theta", says="1e+06")),
    _switch("rope_scale", "F20", "rotation scaling", "long",
            Cause(code="engine.scale", says="divided by 4")),
    _switch("short_table", "F21", "positions beyond the table", "long",
            Cause(code="engine.positions")),
    _switch("decode_shift", "F22", "drafted rows a position late", "tail",
            Cause(code="engine.decode_shift", says="late")),
    _switch("late_features", "F23", "features a row late", "first",
            Cause(code="engine.pairing", says="features a row late")),
    _switch("unshifted_tokens", "F23", "tokens not shifted", "first",
            Cause(code="engine.pairing", says="token")),
    _switch("chunk_border", "F24", "border row of a chunk", "cycle",
            Cause(code="engine.border"), Cause(code="parity.chunks")),
    _switch("cached_border", "F25", "border row of a reused prefix", "cycle",
            Cause(code="parity.prefix")),
    _switch("no_extend", "F26", "no extend after a verify", "cycle", Cause(code="engine.extend")),
    _switch("wrong_row", "F27", "another row guesses", "cycle", Cause(code="engine.guess_row")),
    _switch("no_compaction", "F28", "kept path of a tree not moved", "cycle",
            Cause(code="parity.cache")),
    _switch("siblings_seen", "F30", "mask of a tree", "none", Cause(code="parity.tree")),
    _switch("partial_sum", "F34", "partial sums captured", "rank",
            Cause(code="engine.features_scaled", says="0.5 of layer")),
    _switch("swapped_lanes", "F36", "rows of other requests", "batch", Cause(code="parity.batch")),
    _switch("clipped_features", "F45", "features in a narrow dtype", "first",
            Cause(code="engine.features_clipped")),
    _switch("random_weights", "F51", "tensor dropped by the loader", "flat",
            Cause(code="engine.unnamed")),
    _switch("capture_aliased", "F54", "one buffer for all layers", "first",
            Cause(code="engine.slots", says="one layer in every slot")),
    _switch("capture_normed", "F55", "streams after a norm", "first", Cause(code="engine.tap")),
)  # fmt: skip
