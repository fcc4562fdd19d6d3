"""``sightline evaluate`` of a translator: translations of a split, and their scores."""

import json
from collections.abc import Sequence

from sightline.cli.runs import Asked, Evaluated
from sightline.cli.translate_run import TranslateRun, open_run
from sightline.data.dates import SPLITS, DatePair, Dates, is_dates
from sightline.data.pairs import Pair
from sightline.decode.translations import Translation
from sightline.evaluate.translation import alignment_accuracy, chance_of_alignment, score, signatures
from sightline.train.translate_data import TranslateData

__all__ = ["evaluate"]


def evaluate(asked: Asked) -> Evaluated:
    """Translate a split and score it; on dates also what is exactly right, and where the model looked."""
    run = open_run(asked.run, asked.device)
    pairs = run.pairs(asked.data, source=asked.source, target=asked.target)
    chosen = pairs.split(asked.split)[: asked.most]
    run.check([pair.source for pair in chosen], unknown=True)
    embedded = is_dates(asked.data or run.data.place)
    written = run.translate(
        [pair.source for pair in chosen], width=asked.beam, look=embedded, batch_size=asked.batch_size
    )
    texts, references = [one.text for one in written], [pair.target for pair in chosen]
    scores = score(texts, references)
    about = (
        f"{len(chosen)} pairs of split {asked.split!r} of {pairs.source}, "
        f"{pairs.source_language} to {pairs.target_language}, "
        f"beam {asked.beam}, length_penalty {run.data.length_penalty:g}"
    )
    if embedded:
        dates = _dates(run.data, asked.split)[: len(chosen)]
        offsets = [run.tokens.offsets(pair.source) for pair in chosen]
        scores["alignment_accuracy"] = alignment_accuracy(written, dates, offsets)
        about += f"; alignment by chance {chance_of_alignment(dates, offsets):.3f}"
    else:
        del scores["exact_match"]
    files = {"translations.json": _listed(run, chosen, written)} if asked.wants_pictures else {}
    return Evaluated(scores=scores, signatures=signatures(texts, references), about=about, files=files)


def _dates(data: TranslateData, split: str) -> list[DatePair]:
    """The dates of a split with the places of their parts, in the order of their pairs."""
    sizes = dict(zip(SPLITS, (data.n_train, data.n_val, data.n_test), strict=True))
    wanted = SPLITS if split == "all" else [name for name in SPLITS if name.startswith(split)]
    return [date for name in wanted for date in Dates(sizes[name], seed=data.data_seed, split=name)]


def _listed(run: TranslateRun, pairs: Sequence[Pair], written: Sequence[Translation]) -> str:
    rows = [
        {"source": pair.source, "translation": one.text, "reference": pair.target, "score": one.score}
        for pair, one in zip(pairs, written, strict=True)
    ]
    return json.dumps({"run": run.folder.name, "translations": rows}, indent=1, ensure_ascii=False) + "\n"
