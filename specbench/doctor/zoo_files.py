"""Faults of the zoo that edited checkpoints make.

Layers in words are those of the shipped pair: 8 layers, features of physical 2, 4 and 7, written
as [1, 3, 6] (SpecForge's ids name the layer whose output is taken).
"""

from __future__ import annotations

import numpy as np

from specbench.doctor import zoo_edits as edits
from specbench.doctor.zoo import Cause, Edit, Fault, cause

PLAIN = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"


def _draft(
    name: str, failures: str, kind: str, shape: str, edit: Edit, code: str, says: str = ""
) -> Fault:
    return Fault(
        name=name, failures=tuple(failures.split()), kind=kind, shape=shape, draft=edit,
        causes=cause(code, says),
    )  # fmt: skip


def _ones(name: str, width: int) -> Edit:
    return edits.tensors(lambda t: t.update({name: np.ones(width, np.float16)}))


FILE_FAULTS: tuple[Fault, ...] = (
    _draft("ids_missing", "F1", "default layers", "first", edits.ids(None), "ids.absent"),
    _draft("ids_misplaced", "F1 F49", "default layers", "first", edits.config(edits.misplaced),
           "ids.misplaced"),
    Fault(name="default_taken", failures=("F1",), kind="default layers", shape="first",
          draft=edits.ids(None), as_default=True,
          causes=cause("wiring.slots", "layer 7 instead of 5")),
    _draft("ids_plus_one", "F2", "layers one high", "first", edits.ids([2, 4, 7]),
           "wiring.slots", "all layers -1"),
    _draft("ids_minus_one", "F2", "layers one low", "first", edits.ids([0, 2, 5]),
           "wiring.slots", "all layers +1"),
    _draft("ids_embedding", "F5", "embedding for a layer", "first", edits.ids([-1, 3, 6]),
           "ids.embedding"),
    _draft("ids_outside", "F2", "ids outside the target", "one", edits.ids([1, 3, 60]),
           "ids.range"),
    _draft("ids_two_sets", "F1 F2", "two sets of ids", "first",
           edits.values(eagle_aux_hidden_state_layer_ids=[1, 3, 6]), "ids.two_sets"),
    _draft("ids_two_of_three", "F6 F37", "fewer layers than fc reads", "one",
           edits.ids([1, 3]), "fc.width"),
    _draft("fc_reversed", "F6", "order of the layers", "first",
           edits.tensors(edits.reversed_fc), "wiring.slots", "order [7, 4, 2]"),
    _draft("eagle_head", "F8", "an EAGLE-1 or 2 head", "one", edits.tensors(edits.eagle_head),
           "draft.kind"),
    _draft("map_direct", "F11", "d2t read as target ids", "one",
           edits.tensors(edits.direct_map), "map.direct"),
    _draft("map_zero", "F12", "d2t missing or zero", "one", edits.tensors(edits.zero_map),
           "map.missing", "all zeros"),
    _draft("map_missing", "F12", "d2t missing or zero", "one",
           edits.tensors(lambda t: t.pop("d2t")), "map.missing", "no readable d2t"),
    _draft("vocab_poor", "F13", "vocabulary lacks what is written", "category",
           edits.without_tokens(0.6), "vocab.coverage"),
    _draft("norm_output_set", "F14", "norm_output", "tail", edits.values(norm_output=True),
           "wiring.norm_output"),
    _draft("norm_before_residual_set", "F15", "norm_before_residual", "first",
           edits.values(norm_before_residual=True), "wiring.norm_before_residual"),
    _draft("norm_before_fc_unread", "F16", "a norm that no flag switches on", "first",
           _ones("input_norm.weight", 768), "norms.unused"),
    _draft("fc_norm_absent", "F16", "a norm that is not there", "first",
           edits.values(fc_norm=True), "norms.missing"),
    _draft("norm_before_fc_set", "F16", "a norm too many", "first",
           edits.both(_ones("input_norm.weight", 768), edits.values(norm_before_fc=True)),
           "wiring.norm_before_fc"),
    _draft("embedding_scrambled", "F18", "embedding replaced", "flat",
           edits.scrambled_embedding, "wiring.own_embedding"),
    _draft("theta_set", "F19", "rotation base", "flat", edits.values(rope_theta=1e6),
           "wiring.theta", "theta 10000"),
    _draft("rope_scaled", "F20", "rotation scaling", "long",
           edits.values(rope_scaling={"rope_type": "linear", "factor": 4.0}), "wiring.scale",
           "divided by 1"),
    _draft("positions_short", "F21", "draft's positions end early", "long",
           edits.values(max_position_embeddings=64), "rope.positions"),
    _draft("draft_rounded", "F32", "draft quantised", "flat", edits.rounded(lambda n: True),
           "dtype.rounded", "draft"),
    Fault(name="target_rounded", failures=("F31",), kind="target quantised", shape="flat",
          target=edits.rounded(lambda n: ".layers." in n),
          causes=cause("dtype.rounded", "target")),
    _draft("tokenizer_other", "F46 F56", "another tokenizer", "first", edits.other_tokenizer,
           "tokenizer.differs"),
    Fault(name="prompts_raw", failures=("F43",), kind="another chat template", shape="first",
          raw_prompts=True, causes=cause("wiring.template", "chat template")),
    Fault(name="template_replaced", failures=("F43",), kind="another chat template",
          shape="first", target=edits.values_of("tokenizer_config.json", chat_template=PLAIN),
          draft=edits.own_template,
          causes=(Cause(code="template.differs"), Cause(code="wiring.template"))),
    Fault(name="bos_doubled", failures=("F46",), kind="start token twice", shape="flat",
          target=edits.doubled_bos, causes=cause("template.bos")),
    _draft("head_tied", "F50", "head tied to the embedding", "one",
           edits.values(tie_word_embeddings=True), "head.tied"),
    _draft("tensor_dropped", "F51", "tensor dropped by the loader", "flat",
           edits.tensors(lambda t: t.pop("midlayer.self_attn.o_proj.weight")), "tensors.missing"),
    _draft("target_other", "F56", "another target", "first", edits.values(vocab_size=5000),
           "vocab.size"),
)  # fmt: skip
