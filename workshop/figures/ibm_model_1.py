"""IBM model 1 (Brown et al., 1993): alignments from word counts alone, a yardstick for those of attention.

p(t | s)  is learned by expectation maximisation from  p(t_j) = Σ_i p(t_j | s_i) / (n + 1),  s_0 = no word
"""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["ibm_model_1"]

Pair = tuple[str, str]
NO_WORD = ""


def ibm_model_1(
    train: Sequence[Pair], pairs: Sequence[Pair], *, iterations: int = 5
) -> list[set[tuple[int, int]]]:
    """Link each target word of some pairs to the source word that best predicts it, or to none.

    Args:
        train: Sentence pairs to learn from, words between spaces.
        pairs: Sentence pairs to align; they are learned from too, as aligners do.
        iterations: Of expectation maximisation.

    Returns:
        ``(source, target)`` links of each pair.

    Example:
        >>> train = [("das haus", "the house"), ("das buch", "the book"), ("ein buch", "a book")]
        >>> sorted(ibm_model_1(train, [("ein haus", "a house")])[0])
        [(0, 0), (1, 1)]
    """
    words = [(_words(source), target.split()) for source, target in [*pairs, *train]]
    cells, targets = _cells(words)
    entries, cell_entry = torch.unique(cells, return_inverse=True)  # the table: (source word, target word)
    source_word = entries >> 32
    p = torch.ones(len(entries), dtype=torch.float64)
    n_targets = int(targets[-1]) + 1 if len(targets) else 0
    for _ in range(iterations):
        share = p[cell_entry]
        share = share / _sums(targets, share, n_targets)[targets]  # who accounts for each target word
        counts = _sums(cell_entry, share, len(entries))
        p = counts / _sums(source_word, counts, int(source_word.max()) + 1)[source_word]
    return _best(p[cell_entry], words[: len(pairs)])


def _words(text: str) -> list[str]:
    return [NO_WORD, *text.split()]


def _sums(index: Tensor, values: Tensor, n: int) -> Tensor:
    return torch.zeros(n, dtype=values.dtype).index_add_(0, index, values)


def _cells(words: Sequence[tuple[list[str], list[str]]]) -> tuple[Tensor, Tensor]:
    """For every cell of every pair its two words, as one number, and the target word it belongs to."""
    ids: dict[str, int] = {}
    cells, targets, n = [], [], 0
    for source, target in words:
        s = torch.tensor([ids.setdefault(word, len(ids)) for word in source])
        t = torch.tensor([ids.setdefault(word, len(ids)) for word in target], dtype=torch.long)
        cells.append(((s << 32) + t[:, None]).flatten())
        targets.append(torch.arange(n, n + len(t)).repeat_interleave(len(s)))
        n += len(t)
    return torch.cat(cells), torch.cat(targets)


def _best(p: Tensor, words: Sequence[tuple[list[str], list[str]]]) -> list[set[tuple[int, int]]]:
    links, at = [], 0
    for source, target in words:
        best = p[at : at + len(source) * len(target)].view(len(target), len(source)).argmax(-1).tolist()
        at += len(source) * len(target)
        links.append({(s - 1, t) for t, s in enumerate(best) if s})
    return links
