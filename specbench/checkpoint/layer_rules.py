"""What a config says of one layer: its sizes, and the rules that every layer of ours follows."""

from __future__ import annotations

from collections.abc import Mapping

from specbench.checkpoint.keys import Keys, shown
from specbench.errors import CheckpointError, UnsupportedError
from specbench.modelspec import LayerShape

UNQUANTISED = "Point to the checkpoint that it was quantised from."
FULL, SLIDING = "full_attention", "sliding_attention"


def head_shape(keys: Keys, *, head_dim: int | None = None) -> LayerShape:
    """Sizes of a layer with grouped-query attention and SwiGLU.

    Args:
        keys: the config.
        head_dim: the family's width of a head where the config names none; None means
            hidden / heads.

    Raises:
        CheckpointError: a size is missing or does not divide.
    """
    hidden, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    kv_heads = keys.integer("num_key_value_heads", heads)
    if keys.raw("head_dim") is not None:
        width = keys.integer("head_dim")
    elif head_dim is not None:
        width = keys.integer("head_dim", head_dim)
    elif hidden % heads:
        raise CheckpointError(f"{keys.source}: hidden_size={hidden} / num_attention_heads={heads}.")
    else:
        width = hidden // heads
    if heads % kv_heads or width % 2:
        raise CheckpointError(
            f"{keys.source}: num_attention_heads={heads}, num_key_value_heads={kv_heads}, "
            f"head_dim={width}.",
            expected="Query heads a multiple of key heads, and an even head_dim.",
        )
    return LayerShape(
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=width,
        inner=keys.integer("intermediate_size"),
        eps=keys.number("rms_norm_eps", 1e-6),
    )


def layer_shape(keys: Keys) -> LayerShape:
    """The sizes of a Llama layer: no biases, no window.

    Raises:
        CheckpointError: a size is missing, does not divide, or asks for what is not supported.
    """
    shape = head_shape(keys)
    common_rules(keys)
    keys.must_be("attention_bias", False)
    window = sliding_window(keys)
    if window is not None:
        raise UnsupportedError(
            f"{keys.source}: sliding_window={window} is not supported here.",
            expected="Full attention in every layer.",
        )
    return shape


def common_rules(keys: Keys) -> None:
    """What every layer of ours asks of a config: SwiGLU without biases, plain weights.

    Raises:
        CheckpointError: the config asks for something else.
    """
    keys.must_be("hidden_act", "silu")
    keys.must_be("mlp_bias", False)
    no_quantisation(keys)


def sliding_window(keys: Keys) -> int | None:
    """The window of the layers in tokens, None where every layer sees everything.

    ``sliding_window`` counts unless ``use_sliding_window`` is false (Qwen's configs keep the number
    then) or ``layer_types`` names full layers alone, as many as the target has in some drafts.

    Raises:
        CheckpointError: kinds of layers that are not known, or sliding ones without a window.
    """
    keys.raw("max_window_layers")  # means something only with a window
    layers, kinds = keys.integer("num_hidden_layers"), keys.raw("layer_types")
    width = keys.raw("sliding_window")
    slides = keys.flag("use_sliding_window", default=True) and width is not None
    if kinds is not None:
        known = isinstance(kinds, list) and {*map(str, kinds)} <= {FULL, SLIDING}
        slides = known and SLIDING in kinds
        if not known or not kinds or (slides and len(kinds) != layers):
            raise UnsupportedError(
                f"{keys.source}: layer_types={shown(kinds)} is not supported.",
                expected=f"{FULL} or {SLIDING} for each of {layers} layers.",
            )
    return keys.integer("sliding_window") if slides else None


def no_quantisation(keys: Keys, todo: str = UNQUANTISED) -> None:
    """Raise where the config says that the weights are quantised."""
    quantised = keys.raw("quantization_config")
    if quantised is not None:
        method = quantised.get("quant_method", "?") if isinstance(quantised, Mapping) else "?"
        raise UnsupportedError(
            f"{keys.source}: quantization_config: the weights are quantised ({shown(method)}).",
            expected="Plain float64, float32, float16 or bfloat16 weights.",
            todo=todo,
        )
