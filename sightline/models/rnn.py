"""Sequence to sequence with attention (Bahdanau et al., 2015; Luong et al., 2015), after the lecture notes.

    h_s = both ways over the source            k_s = K h_s,  v_s = V h_s
    s_t = RNN(y_{t-1}, s_{t-1})                 q_t = Q s_t
    α_t = softmax(score(q_t, k_s))              c_t = Σ_s α_ts v_s
    r_t = tanh(W [top state; c_t; y_{t-1}])     p(y_t) = softmax(O r_t)

The query of step t has read y_{t-1} and chooses y_t, so row t of the weights aligns y_t with the source.
The context always joins the readout, and layers above the first read ``[s_t; c_t]``. ``feed`` chooses what
else of the last step the first layer reads beside y_{t-1}:

    none      nothing: Luong's global attention; no recurrence waits for it, so teacher forcing is one call
    context   c_{t-1}, found by s_{t-1}: the recurrence of Bahdanau, who reads it out with the same context
    readout   r_{t-1}: Luong's input feeding; c_{t-1} comes with it, as the readout was made from it
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sightline.attention.attend import attention
from sightline.attention.scores import Additive, General, LowRank, Score, named
from sightline.attention.softmax import masked_softmax
from sightline.data.tokens import PAD
from sightline.models.recurrence import CELLS, Bidirectional, Recurrence, RecurrentState
from sightline.models.run_folder import CONFIG, SaveableModel, read_config
from sightline.settings import check, setting
from sightline.shapes import Float, Int

__all__ = [
    "FEEDS",
    "SCORES",
    "RecurrentConfig",
    "RecurrentTranslator",
    "check_architecture",
    "check_shared",
]

SCORES = ("additive", "cosine", "dot", "general", "low_rank", "scaled_dot", "none")
FEEDS = ("none", "context", "readout")


@dataclass(frozen=True, kw_only=True, slots=True)
class RecurrentConfig:
    """The shape of a recurrent translator.

    Example:
        >>> RecurrentConfig(source_vocab_size=50, vocab_size=40, score="general").cell
        'gru'
    """

    architecture: Literal["recurrent"] = setting("recurrent", "Which translator this is.", advanced=True)
    source_vocab_size: int = setting(
        0, "Tokens of the source; 0: as the tokenizer has.", at_least=0, largest=1 << 24, advanced=True
    )
    vocab_size: int = setting(
        0, "Tokens of the target; 0: as the tokenizer has.", at_least=0, largest=1 << 24, advanced=True
    )
    cell: str = setting("gru", "gru or lstm.", choices=CELLS, advanced=True)
    score: str = setting(
        "additive",
        f"How a state is matched with the source: {', '.join(SCORES)}.",
        choices=SCORES,
        advanced=True,
    )
    feed: str = setting(
        "none",
        f"What of the last step joins the next input: {', '.join(FEEDS)}.",
        choices=FEEDS,
        advanced=True,
    )
    d_model: int = setting(256, "Width of embeddings and states.", at_least=1, largest=1 << 16)
    d_attn: int = setting(128, "Width of queries and keys.", at_least=1, largest=1 << 16, advanced=True)
    rank: int = setting(32, "Rank of the low_rank score.", at_least=1, largest=1 << 16, advanced=True)
    n_layers: int = setting(1, "Layers of the encoder and of the decoder.", at_least=1, largest=1000)
    dropout: float = setting(0.2, "Share of values dropped in training.", at_least=0, below=1)
    tied: bool = setting(True, "Whether the output uses the target's embeddings.", advanced=True)
    shared: bool = setting(
        False, "Whether source and target share embeddings; needs a joint vocabulary.", advanced=True
    )
    max_length: int = setting(
        128,
        "The longest source and target in training, in tokens.",
        at_least=1,
        largest=1 << 20,
        advanced=True,
    )
    longest: ClassVar[None] = None  # a recurrence has no end: what it can read is not bounded

    def __post_init__(self) -> None:
        if self.architecture != "recurrent":
            raise ValueError(
                f"this is a recurrent translator's config, got architecture {self.architecture!r}"
            )
        check(self)
        check_shared(shared=self.shared, source=self.source_vocab_size, target=self.vocab_size)


class _Flat(Score):
    """A score of zero: all source positions get the same weight, so one vector stands for the sentence."""

    def forward(self, q: Float[Tensor, "... T Dq"], k: Float[Tensor, "... S Dk"]) -> Float[Tensor, "... T S"]:
        """Zeros."""
        return (q[..., :1] * 0) @ (k[..., :1] * 0).mT


class RecurrentTranslator(SaveableModel):
    """A bidirectional recurrent encoder and a recurrent decoder with attention over it.

    Example:
        >>> config = RecurrentConfig(source_vocab_size=11, vocab_size=13, d_model=8, d_attn=4)
        >>> model = RecurrentTranslator(config)
        >>> model(torch.ones(2, 5, dtype=torch.long), torch.ones(2, 3, dtype=torch.long)).shape  # B, T, V
        torch.Size([2, 3, 13])
    """

    kind = "translate"
    Config = RecurrentConfig
    config: RecurrentConfig

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        e, cell = config.d_model, config.cell
        self.embedding = nn.Embedding(config.vocab_size, e, padding_idx=PAD)
        self.source_embedding = (
            None if config.shared else nn.Embedding(config.source_vocab_size, e, padding_idx=PAD)
        )
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(
            Bidirectional(cell, 2 * e if i else e, e) for i in range(config.n_layers)
        )
        self.to_key = nn.Linear(2 * e, config.d_attn)
        self.to_value = nn.Linear(2 * e, e)
        self.d_fed = 0 if config.feed == "none" else e
        decoder = [Recurrence(cell, 2 * e if i else e + self.d_fed, e) for i in range(config.n_layers)]
        self.first = nn.ModuleList(nn.Linear(2 * e, layer.d_state) for layer in decoder)
        self.decoder: Sequence[Recurrence] = nn.ModuleList(decoder)  # type: ignore[assignment]
        self.to_query = nn.Linear(e, config.d_attn)
        self.score, self.scale = _score(config)
        self.readout = nn.Linear(3 * e, e)
        self.output = nn.Linear(e, config.vocab_size)
        for embedding in (self.embedding, self.source_embedding):
            if embedding is not None:
                nn.init.normal_(embedding.weight, std=0.1)
        if config.tied:  # one tensor under one name, so that it is saved once
            del self.output
            self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    @classmethod
    def load(
        cls, folder: Path | str, device: torch.device | str = "cpu", *, force: bool = False
    ) -> "RecurrentTranslator":
        """The model of a run folder, in eval; see :meth:`sightline.models.run_folder.SaveableModel.load`."""
        check_architecture(folder, "recurrent")
        return super().load(folder, device, force=force)

    def forward(self, source: Int[Tensor, "B S"], target: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """The logits of each next token, given the source and the true tokens before it."""
        state = self.start(source)
        y = self.dropout(self.embedding(target))  # (B, T, E)
        if self.config.feed == "none":
            return self._all_steps(state, y)
        read = []
        for t in range(y.size(1)):
            one, state = self._step(state, y[:, t])
            read.append(one)
        return self._logits(torch.stack(read, 1))

    def start(self, source: Int[Tensor, "B S"], *, look: bool = False) -> RecurrentState:
        """Read the source once; the state from which the first token is chosen."""
        real = source != PAD
        embedding = self.embedding if self.source_embedding is None else self.source_embedding
        x = self.dropout(embedding(source))
        for i, layer in enumerate(self.encoder):
            read = self.dropout(layer(x, real))
            x = read + x if i > 1 else read  # layers far from the input keep a short way to it
        whole = (x * real[..., None]).sum(1) / real.sum(1, keepdim=True).clamp_min(1)
        hidden = (torch.tanh(first(whole)) for first in self.first)
        return RecurrentState(
            rows=(*hidden, whole.new_zeros(whole.size(0), self.d_fed)),
            inputs=(self.to_key(x), self.to_value(x), real),
            look=look,
        )

    def step(
        self, state: RecurrentState, ids: Int[Tensor, " N"]
    ) -> tuple[Float[Tensor, "N V"], RecurrentState]:
        """The log-probabilities of the next token after ``ids``, and the state that has seen them."""
        read, state = self._step(state, self.dropout(self.embedding(ids)))
        return self._logits(read).float().log_softmax(-1), state

    def _all_steps(self, state: RecurrentState, y: Float[Tensor, "B T E"]) -> Float[Tensor, "B T V"]:
        """All steps at once: possible where no step is fed the context of the one before."""
        *first, _ = state.rows
        s, _ = self.decoder[0](y, first[0])
        s = self.dropout(s)
        context, _ = self._look(state, s)
        for layer, hidden in zip(self.decoder[1:], first[1:], strict=True):
            above, _ = layer(torch.cat([s, context], -1), hidden)
            s = s + self.dropout(above)
        return self._logits(self._read(s, context, y))

    def _step(self, state: RecurrentState, y: Float[Tensor, "N E"]) -> tuple[Tensor, RecurrentState]:
        """One step: the readout, and the new state, whose last entry is fed to the next step."""
        *before, fed = state.rows
        hidden = [self.decoder[0].step(torch.cat([y, fed], -1), before[0])]
        s = self.dropout(self.decoder[0].output(hidden[0]))
        context, weights = self._look(state, s.view(-1, state.width, s.size(-1)))  # (B, K, E)
        context = context.flatten(0, 1)
        for layer, last in zip(self.decoder[1:], before[1:], strict=True):
            hidden.append(layer.step(torch.cat([s, context], -1), last))
            s = s + self.dropout(layer.output(hidden[-1]))
        read = self._read(s, context, y)
        fed = {"none": fed, "context": context, "readout": read}[self.config.feed]
        attention_weights = None if weights is None else weights.flatten(0, 1)[:, None]
        return read, replace(state, rows=(*hidden, fed), attention_weights=attention_weights)

    def _look(self, state: RecurrentState, s: Float[Tensor, "B T E"]) -> tuple[Tensor, Tensor | None]:
        """The context of each decoder state, and if asked for the weights ``(B, T, S)``."""
        keys, values, real = state.inputs
        q, real = self.to_query(s), real[:, None]
        if state.look:
            weights = masked_softmax(self.score(q, keys) * self.scale, real)
            return weights @ values, weights
        return attention(q, keys, values, real, score=self.score, scale=self.scale), None

    def _read(self, s: Tensor, context: Tensor, y: Tensor) -> Tensor:
        return self.dropout(torch.tanh(self.readout(torch.cat([s, context, y], -1))))

    def _logits(self, read: Tensor) -> Tensor:
        return F.linear(read, self.embedding.weight, self.bias) if self.config.tied else self.output(read)


def _score(config: RecurrentConfig) -> tuple[Score, float]:
    """The score function of a name, and its scale.

    A cosine is never above one, too little for a softmax over many words: it is stretched to the range that
    the scaled dot product of vectors of unit variance has.
    """
    d = config.d_attn
    if config.score == "additive":
        return Additive(d, d, d), 1.0
    if config.score == "general":
        return General(d, d), 1.0
    if config.score == "low_rank":
        return LowRank(d, d, config.rank), 1.0
    if config.score == "none":
        return _Flat(), 1.0
    # ``scale`` multiplies a score's own
    return named(config.score), math.sqrt(d) if config.score == "cosine" else 1.0


def check_shared(*, shared: bool, source: int, target: int) -> None:
    """Refuse embeddings that source and target would share while their vocabularies differ in size."""
    if shared and source != target:
        raise ValueError(
            "shared embeddings need one vocabulary for source and target, got "
            f"{source} and {target} tokens; train a joint tokenizer"
        )


def check_architecture(folder: Path | str, wanted: str) -> None:
    """Refuse a run folder that holds a translator of the other kind."""
    config = read_config(folder)
    found = config["model"].get("architecture")
    if config["kind"] == "translate" and found != wanted:
        raise ValueError(
            f"the model in {str(folder)!r} must be {wanted}, its {CONFIG} says {found!r}; "
            "sightline.models.translator.open_translator opens either"
        )
