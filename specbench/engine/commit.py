"""What of a step's tokens the user gets: stop tokens, stop strings and max_tokens."""

from __future__ import annotations

from collections.abc import Sequence as Tokens

from specbench.engine.batch import Sequence
from specbench.trace import Finish


def commit(sequence: Sequence, tokens: Tokens[int]) -> tuple[int, str]:
    """Append ``tokens`` to a sequence, up to and with the one that ends it.

    The stop token, or the token that completes a stop string, is the last one emitted; the text
    stops before it (semantics 9: accepted counts are taken before this cut, emitted after).

    Returns:
        Number of tokens emitted, and the text that is now certain.
    """
    room = sequence.request.sampling.max_tokens - len(sequence.output)
    kept = list(tokens[:room])
    stop = next((i for i, token in enumerate(kept) if token in sequence.stop_ids), None)
    shown = kept if stop is None else kept[:stop]
    if stop is not None:
        kept = kept[: stop + 1]
    text, used = _feed(sequence, shown)
    if sequence.text.stopped:
        kept, stop = kept[:used], used
    sequence.output += kept
    if stop is not None:
        sequence.finish = Finish.STOP
    elif len(kept) == room:
        sequence.finish = Finish.LENGTH
    if sequence.finish is not None:
        text += sequence.text.end()
    return len(kept), text


def _feed(sequence: Sequence, shown: Tokens[int]) -> tuple[str, int]:
    """Text of ``shown`` and how many of them were needed; all, unless a stop string came."""
    stream = sequence.text
    if not stream.watches:
        return stream.feed(shown), len(shown)
    text = ""
    for used, token in enumerate(shown, start=1):
        text += stream.feed([token])
        if stream.stopped:
            return text, used
    return text, len(shown)
