"""The pictures of the demo: attention at work on a sentence whose word vectors were written by hand."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from torch import Tensor

from sightline import show
from sightline.attention import masks, scores
from sightline.attention.reference import scaled_dot_product_attention
from sightline.positions import shift_matrix, sinusoidal
from sightline.shapes import Float

__all__ = ["WORDS", "Picture", "draw_pictures", "sentence"]

# word, what it is, what it looks for
WORDS = [
    ("the", "article", "next word"),
    ("cat", "animal", "animal"),
    ("sat", "action", "animal"),
    ("on", "relation", "place"),
    ("the", "article", "next word"),
    ("mat", "place", "place"),
    ("because", "link", "action"),
    ("it", "pronoun", "animal"),
    ("was", "state", "pronoun"),
    ("tired", "quality", "animal"),
]
_KINDS = sorted({kind for _, kind, _ in WORDS})
_D_POSITION, _BASE = 16, 20.0
_EAGER = 14.0  # how strongly a word asks for a kind: enough for most of its weight
_EAGER_AHEAD = 10.0


@dataclass(frozen=True)
class Picture:
    """One figure of the demo, with the sentence that says what to see in it."""

    name: str
    title: str
    caption: str
    figure: Figure


def sentence() -> tuple[list[str], Float[Tensor, "T E"], Float[Tensor, "T E"]]:
    """The words, their vectors (what each is, where it stands) and their queries (what each looks for)."""
    where = sinusoidal(len(WORDS), _D_POSITION, base=_BASE)
    ahead = where @ shift_matrix(1, _D_POSITION, base=_BASE).T  # each row is the next word's position
    vectors, queries = [], []
    for t, (_, kind, wanted) in enumerate(WORDS):
        vectors.append(torch.cat([_one_hot(kind), where[t]]))
        if wanted == "next word":
            queries.append(torch.cat([torch.zeros(len(_KINDS)), _EAGER_AHEAD * ahead[t]]))
        else:
            queries.append(torch.cat([_EAGER * _one_hot(wanted), torch.zeros(_D_POSITION)]))
    return [word for word, _, _ in WORDS], torch.stack(vectors), torch.stack(queries)


def draw_pictures(steps: int = 150) -> list[Picture]:
    """Draw them all; ``steps`` of training go into the scores that have something to learn."""
    words, vectors, queries = sentence()
    weights = scaled_dot_product_attention(queries, vectors, vectors)[1]
    gallery = {
        "causal": masks.causal(),
        "window(2, 1)": masks.window(2, 1),
        "padding([6])": masks.padding([6]),
        "causal & padding": masks.causal() & masks.padding([6]),
    }
    return [
        Picture(
            "positions",
            "Where a word stands",
            "Sinusoidal positions: each row is the vector added at one position. The left columns turn fast "
            "and tell neighbours apart, the right ones turn slowly and tell the beginning from the end.",
            show.positions(sinusoidal(64, 32)),
        ),
        Picture(
            "attention",
            "What each word looks at",
            "Read along a row. The vectors were written by hand: 'it' and 'tired' ask for an animal and look "
            "at 'cat', 'on' asks for a place and looks at 'mat'; each 'the' asks for the position after its "
            "own, found by the shift matrix of one, and so the same word looks at two different nouns.",
            show.weights(weights, words, words),
        ),
        Picture(
            "masks",
            "What each word may look at",
            "Ten queries and ten keys. Causal: only the past. Window: two back and one ahead. Padding: the "
            "last four keys are not there. Two masks combined with & leave what both allow.",
            show.masks(gallery, len(words)),
        ),
        Picture(
            "scores",
            "Six ways to match a query with a key",
            "The same word vectors as queries and keys. The upper three have nothing to learn: a word looks "
            f"at words like itself and near itself. The lower three were trained for {steps} steps to look "
            "where the words above look.",
            show.scores(vectors, vectors, _six_scores(vectors, weights, steps), queries=words, keys=words),
        ),
    ]


def _six_scores(
    vectors: Float[Tensor, "T E"], weights: Float[Tensor, "T T"], steps: int
) -> dict[str, scores.Score]:
    """The score functions; those with parameters trained to put their weight where ``weights`` does."""
    e = vectors.size(-1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        learned = {
            "general": scores.General(e, e),
            "low rank": scores.LowRank(e, e, 8),
            "additive": scores.Additive(e, e, 16),
        }
    for score in learned.values():
        optimizer = torch.optim.Adam(score.parameters(), lr=0.05)
        for _ in range(steps):
            optimizer.zero_grad()
            F.cross_entropy(score(vectors, vectors), weights).backward()
            optimizer.step()
    plain = {"dot": scores.Dot(), "scaled dot": scores.ScaledDot(), "cosine": scores.Cosine()}
    return {**plain, **learned}


def _one_hot(kind: str) -> Float[Tensor, " kinds"]:
    return F.one_hot(torch.tensor(_KINDS.index(kind)), len(_KINDS)).float()
