"""Offline feature files of a draft's training, as read from disk (engine-spec 11.1, 11.2).

Three forms, told apart by the names of their tensors, all safetensors:

- speculators (0.5 on): ``hidden_states`` [S, A + 1, Ht] with ``token_ids`` [S]; the order of the
  list is that of the input of fc, its last entry the last state. Its standard form has
  ``hidden_states`` [S, A·Ht] and ``verifier_last_hidden_states`` [S, Ht] beside ``input_ids``.
- SpecForge: ``aux_hidden_state`` [S, A·Ht], ``hidden_state`` [S, Ht] (the last state),
  ``input_ids`` and ``loss_mask``, with or without a batch of one in front.
- our own, with the physical index of every stream in its name (``probe_store``).

What the first two write themselves is pickled (.pt, .ckpt): it is never loaded here, since a pickle
runs code. The error says how to turn it into safetensors where one trusts it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from specbench.checkpoint import read_header
from specbench.checkpoint.folder import PICKLE_SUFFIXES
from specbench.errors import WorkloadError

SUFFIX = ".safetensors"
CONVERT = (
    'python -c "import glob, torch; from safetensors.torch import save_file as save; '
    "[save({k: (torch.stack(v, 1) if isinstance(v, list) else v.clone()).contiguous() "
    "for k, v in torch.load(p, weights_only=True).items()}, p + '.safetensors') "
    "for p in sorted(glob.glob('{where}'))]\""
)
_IDS = ("input_ids", "token_ids")
_INTEGERS = {torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8}
_FLOATS = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_ALLOWED = {*_IDS, "loss_mask", "hidden_states", "verifier_last_hidden_states"}
_FORGE = {"input_ids", "loss_mask", "hidden_state", "aux_hidden_state"}


@dataclass(frozen=True, slots=True, kw_only=True)
class RawText:
    """One text of S tokens as its file has it.

    ``streams`` are [S, Ht] in the order of fc's input, ``layers`` their physical indices where the
    file says them. ``last`` [S, Ht] is the last state; ``normed`` whether the file calls it one
    after the final norm, None where it doesn't say. ``mask`` marks reply tokens, None: no mask.
    """

    where: str
    tokens: tuple[int, ...]
    mask: tuple[bool, ...] | None
    streams: tuple[Tensor, ...]
    layers: tuple[int, ...] | None
    last: Tensor
    normed: bool | None

    def parts(self) -> list[tuple[str, Tensor]]:
        """The streams and the last state, each with what a message calls it."""
        streams = [(f"stream {place}", stream) for place, stream in enumerate(self.streams)]
        return [*streams, ("the last state", self.last)]


def feature_files(path: Path) -> list[Path]:
    """The feature files of a folder and those below it, in the order of their numbers.

    Raises:
        WorkloadError: there is none, or only pickles; says how to convert them.
    """
    if path.is_file():
        if path.suffix == SUFFIX:
            return [path]
        found, below = [], [path]
    elif path.is_dir():
        below = sorted(file for file in path.rglob("*") if file.is_file())
        found = [file for file in below if file.suffix == SUFFIX]
    else:
        raise WorkloadError(f"{path} is not there.", expected="Feature files, or a folder of them.")
    if found:
        return sorted(found, key=_natural)
    pickles = [file for file in below if _is_pickle(file)]
    if pickles:
        suffix = "".join(pickles[0].suffixes[-2:]) if pickles[0].suffix == ".gz" else ""
        where = path if path.is_file() else pickles[0].parent / f"*{pickles[0].suffix}"
        unpack = f"Unpack *{suffix} with gunzip first. " if suffix else ""
        raise WorkloadError(
            f"{path} holds only pickle files ({pickles[0].name} and {len(pickles) - 1} more).",
            expected="safetensors: a pickle runs code when it is loaded.",
            todo=f"{unpack}Where you trust them: {conversion(where)}",
        )
    raise WorkloadError(f"{path} holds no {SUFFIX} file.", expected="Offline feature files.")


def conversion(where: Path | str) -> str:
    """A command that turns pickled dictionaries of tensors into safetensors beside them."""
    return CONVERT.replace("{where}", str(where))


def read_feature_file(path: Path, width: int) -> RawText:
    """One text from a file of speculators or SpecForge.

    Args:
        path: a safetensors file.
        width: Ht of the target, to cut joined streams by.

    Raises:
        CheckpointError: it is no whole safetensors file.
        WorkloadError: it has other tensors, or shapes that do not fit each other or ``width``.
    """
    names = set(read_header(path))
    if "aux_hidden_state" in names:
        return _specforge(path, names, width)
    if "hidden_states" in names:
        return _speculators(path, names, width)
    raise _unknown(path, names)


def _speculators(path: Path, names: set[str], width: int) -> RawText:
    if names - _ALLOWED or not names & set(_IDS):
        raise _unknown(path, names)
    tensors = load(path, names)
    states, last = tensors["hidden_states"], tensors.get("verifier_last_hidden_states")
    if states.ndim == 3:
        streams = list(states.unbind(1))
    else:
        streams = list(cut(path, "hidden_states", states, width))
    if last is None:
        *streams, last = streams
    return _raw(path, tensors, streams, last)


def _specforge(path: Path, names: set[str], width: int) -> RawText:
    if names != _FORGE:
        raise _unknown(path, names)
    tensors = {name: _unbatched(path, name, value) for name, value in load(path, names).items()}
    streams = cut(path, "aux_hidden_state", tensors["aux_hidden_state"], width)
    return _raw(path, tensors, list(streams), tensors["hidden_state"])


def _raw(path: Path, tensors: Mapping[str, Tensor], streams: list[Tensor], last: Tensor) -> RawText:
    name = next(name for name in _IDS if name in tensors)
    mask = tensors.get("loss_mask")
    return checked(
        RawText(
            where=path.name,
            tokens=ids_of(path.name, name, tensors[name]),
            mask=None if mask is None else mask_of(path.name, "loss_mask", mask),
            streams=tuple(streams),
            layers=None,
            last=last,
            normed=None,
        )
    )


def ids_of(where: str, name: str, stored: Tensor) -> tuple[int, ...]:
    """Token ids [S], with or without a batch of one.

    Raises:
        WorkloadError: they are no whole numbers, or of another shape.
    """
    return tuple(_row(where, name, stored, stored.dtype in _INTEGERS, "Whole numbers"))


def mask_of(where: str, name: str, stored: Tensor) -> tuple[bool, ...]:
    """A loss mask [S] of zeros and ones of any type, with or without a batch of one.

    Raises:
        WorkloadError: it holds something else, or is of another shape.
    """
    fits = bool(((stored == 0) | (stored == 1)).all())
    return tuple(bool(m) for m in _row(where, name, stored, fits, "Zeros and ones"))


def _row(where: str, name: str, stored: Tensor, fits: bool, what: str) -> list[int]:
    shape = list(stored.shape)
    if not fits or len(shape) not in (1, 2) or (len(shape) == 2 and shape[0] != 1):
        raise WorkloadError(
            f"{where}: {name} is {_kind(stored)} {shape}.",
            expected=f"{what}, one a token: [S], or [1, S] of one text.",
        )
    row: list[int] = stored.flatten().tolist()
    return row


def _kind(stored: Tensor) -> str:
    return str(stored.dtype).removeprefix("torch.")


def checked(raw: RawText) -> RawText:
    """``raw``, if its parts fit each other.

    Raises:
        WorkloadError: names the part with its type and shape, or with both lengths, or the value
            that is not finite.
    """
    count = len(raw.tokens)
    for name, values in raw.parts():
        if values.dtype not in _FLOATS or values.ndim != 2:
            raise WorkloadError(
                f"{raw.where}: {name} is {_kind(values)} {list(values.shape)}.",
                expected="Rows of float16, bfloat16, float32 or float64: [S, width].",
            )
    parts = {name: len(values) for name, values in raw.parts()}
    if raw.mask is not None:
        parts["loss_mask"] = len(raw.mask)
    wrong = [(name, length) for name, length in parts.items() if length != count]
    if wrong:
        raise WorkloadError(
            f"{raw.where}: {wrong[0][0]} has {wrong[0][1]} rows, and there are {count} tokens.",
            expected="One row a token.",
        )
    for name, values in (
        *((f"stream {j}", s) for j, s in enumerate(raw.streams)),
        ("last", raw.last),
    ):
        if not bool(torch.isfinite(values).all()):
            raise WorkloadError(f"{raw.where}: {name} holds values that are not finite.")
    return raw


def load(path: Path, names: Collection[str]) -> dict[str, Tensor]:
    """Some tensors of a safetensors file whose header was checked."""
    with safe_open(path, framework="pt") as file:
        return {name: file.get_tensor(name) for name in names}


def cut(path: Path, name: str, joined: Tensor, width: int) -> tuple[Tensor, ...]:
    """Streams [S, Ht] that stand side by side in ``joined`` [S, A·Ht].

    Raises:
        WorkloadError: it is no whole number of them.
    """
    if joined.ndim != 2 or joined.shape[1] % width or not joined.shape[1]:
        raise WorkloadError(
            f"{path.name}: {name} has shape {list(joined.shape)}, the target's width is {width}.",
            expected=f"Rows of a multiple of {width}.",
            todo="Give the target that the features were taken from.",
        )
    return torch.split(joined, width, 1)


def _unbatched(path: Path, name: str, value: Tensor) -> Tensor:
    flat = 1 if name in ("input_ids", "loss_mask") else 2
    if value.ndim == flat + 1 and value.shape[0] == 1:
        return value[0]
    if value.ndim != flat:
        raise WorkloadError(
            f"{path.name}: {name} has shape {list(value.shape)}.", expected="One text a file."
        )
    return value


def _unknown(path: Path, names: set[str]) -> WorkloadError:
    return WorkloadError(
        f"{path.name} holds {', '.join(sorted(names)[:8]) or 'nothing'}.",
        expected="hidden_states and token_ids or input_ids (speculators), or input_ids, loss_mask, "
        "hidden_state and aux_hidden_state (SpecForge), and nothing else.",
    )


def _is_pickle(file: Path) -> bool:
    return file.suffix in PICKLE_SUFFIXES or file.name.endswith(".ckpt.gz")


def _natural(path: Path) -> list[str | int]:
    """hs_2 before hs_10."""
    parts = re.split(r"(\d+)", str(path))
    return [int(part) if part.isdigit() else part for part in parts]
