"""Names and shapes of all tensors of a target, from its spec alone."""

from __future__ import annotations

from specbench.checkpoint.keys import attention_extras, layer_tensors
from specbench.modelspec import ExpertSpec, LayerShape, TargetSpec

Sizes = dict[str, tuple[int, ...]]


def target_tensors(spec: TargetSpec, most: int) -> Sizes:
    """What the checkpoint must hold, layer by layer, until more than ``most`` are named."""
    hidden = spec.shape.hidden
    wanted: Sizes = {
        "model.embed_tokens.weight": (spec.vocab, hidden),
        "model.norm.weight": (hidden,),
    }
    if not spec.tied:
        wanted["lm_head.weight"] = (spec.vocab, hidden)
    for index in range(spec.n_layers):
        if len(wanted) > most:
            break
        wanted |= _layer(spec, index)
    return wanted


def _layer(spec: TargetSpec, index: int) -> Sizes:
    at, shape = f"model.layers.{index}", spec.shape
    wanted = layer_tensors(at, shape, shape.hidden)
    if spec.attention.latent is not None:
        wanted = {n: s for n, s in wanted.items() if ".self_attn." not in n}
        wanted |= _latent(spec, f"{at}.self_attn")
    else:
        wanted |= _extras(spec, f"{at}.self_attn")
    experts = spec.experts
    if experts is not None and index in experts.layers:
        wanted = {n: s for n, s in wanted.items() if ".mlp." not in n}
        clamped = experts.clamp is not None
        wanted |= (_clamped if clamped else _experts)(experts, shape, f"{at}.mlp")
    return wanted


def _extras(spec: TargetSpec, at: str) -> Sizes:
    wanted = attention_extras(at, spec.shape, spec.attention)
    if spec.attention.sinks:
        wanted[f"{at}.sinks"] = (spec.shape.heads,)
    return wanted


def _latent(spec: TargetSpec, at: str) -> Sizes:
    shape, latent = spec.shape, spec.attention.latent
    assert latent is not None
    queries = shape.heads * shape.head_dim
    if latent.q_rank:
        wanted: Sizes = {
            f"{at}.q_a_proj.weight": (latent.q_rank, shape.hidden),
            f"{at}.q_a_layernorm.weight": (latent.q_rank,),
            f"{at}.q_b_proj.weight": (queries, latent.q_rank),
        }
    else:
        wanted = {f"{at}.q_proj.weight": (queries, shape.hidden)}
    return wanted | {
        f"{at}.kv_a_proj_with_mqa.weight": (latent.kv_rank + latent.rope, shape.hidden),
        f"{at}.kv_a_layernorm.weight": (latent.kv_rank,),
        f"{at}.kv_b_proj.weight": (shape.heads * (latent.nope + latent.value), latent.kv_rank),
        f"{at}.o_proj.weight": (shape.hidden, shape.heads * latent.value),
    }


def _experts(experts: ExpertSpec, shape: LayerShape, at: str) -> Sizes:
    """One SwiGLU per expert, under a number each; the shared one beside them."""
    wanted: Sizes = {f"{at}.gate.weight": (experts.count, shape.hidden)}
    if experts.correction:
        wanted[f"{at}.gate.e_score_correction_bias"] = (experts.count,)
    widths = {f"experts.{j}": experts.inner for j in range(experts.count)}
    if experts.shared_inner is not None:
        widths["shared_experts"] = experts.shared_inner
    for name, inner in widths.items():
        wanted |= {
            f"{at}.{name}.{half}_proj.weight": (inner, shape.hidden) for half in ("gate", "up")
        }
        wanted[f"{at}.{name}.down_proj.weight"] = (shape.hidden, inner)
    return wanted


def _clamped(experts: ExpertSpec, shape: LayerShape, at: str) -> Sizes:
    """gpt-oss: all experts in one tensor each, [in, out], gate and up interleaved."""
    count, inner, hidden = experts.count, experts.inner, shape.hidden
    return {
        f"{at}.router.weight": (count, hidden),
        f"{at}.router.bias": (count,),
        f"{at}.experts.gate_up_proj": (count, hidden, 2 * inner),
        f"{at}.experts.gate_up_proj_bias": (count, 2 * inner),
        f"{at}.experts.down_proj": (count, inner, hidden),
        f"{at}.experts.down_proj_bias": (count, hidden),
    }
