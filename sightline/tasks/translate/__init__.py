"""Translation of sentences, by a Transformer or a recurrent network."""

from dataclasses import fields

from sightline.data.dates import DATES
from sightline.models.rnn import RecurrentConfig
from sightline.models.translator import TranslatorConfig
from sightline.tasks.task import TRAINING, Part, Task
from sightline.tasks.translate.data import TranslateData, open_pairs
from sightline.tasks.translate.predict import (
    TranslateEvaluateOptions,
    TranslateOptions,
    look_json,
    open_sentence_translator,
    predictions_json,
)
from sightline.tasks.translate.prepare import prepare_translator
from sightline.tasks.translate.presets import PRESETS

__all__ = ["TRANSLATE"]

_NO_FLAGS = frozenset({"architecture", "source_vocab_size", "vocab_size", "shared"})  # --model, or the data
_BOTH = frozenset(field.name for field in fields(TranslatorConfig))

TRANSLATE = Task(
    kind="translate",
    summary="Translate sentences.",
    dataset=open_pairs,
    prepare=prepare_translator,
    open=open_sentence_translator,
    parts=(
        Part(name="model", config=TranslatorConfig, title="Model", no_flags=_NO_FLAGS),
        Part(
            name="recurrent",
            config=RecurrentConfig,
            title="Recurrent model",
            inside=("model",),
            no_flags=_NO_FLAGS | _BOTH,
        ),
        Part(name="data", config=TranslateData, title="Data", no_flags=frozenset({"deal"})),
        TRAINING,
    ),
    predict_options=TranslateOptions,
    predictions_json=predictions_json,
    look_json=look_json,
    evaluate_options=TranslateEvaluateOptions,
    presets=PRESETS,
    embedded={DATES: "dates"},
    metrics=("loss", "perplexity", "bleu", "chrf", "exact_match"),
    scores=("bleu", "chrf"),
    extra_scores={"on dates": ("exact_match", "alignment_accuracy")},
    unit="pairs",
    train_help="Train a translator on sentence pairs, or on the embedded set, dates.",
    data_help="A folder, a zip, a table or shards of sentence pairs, or dates.",
    source_field="place",
    architectures={"transformer": TranslatorConfig, "recurrent": RecurrentConfig},
    overrides={"train.batch_size": "data.max_tokens"},
    predict_help="Translate some sentences, and draw what the model looked at for every word.",
    inputs_help="Sentences; - reads them from standard input.",
    ranking="chrf",
)
