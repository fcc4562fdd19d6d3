"""A model in a Hugging Face folder on this machine, watched while it reads. Nothing is downloaded."""

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sightline.look.heads import is_cross
from sightline.look.recording import Recording
from sightline.look.sight import Sight
from sightline.tasks.vision_folder import PatchGrid, is_vision_model, read_pixels
from sightline.untrusted import read_json
from sightline.watch.watch import watch

_PICKLED = ("*.bin", "*.pt", "*.pth", "*.pkl", "*.ckpt")
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.*", "merges.txt", "*.model", "tekken.json")
_NAMELESS = ("model", "models", "snapshots", "checkpoint", "main", "latest", "..", "/")
_NO_SDPA = re.compile(
    "scaled_dot_product_attention|sdpa", re.IGNORECASE
)  # without it a model attends in its own way
_DEPTH = re.compile("(^|_)n_?layers?$|layers$|depth")  # names of the number of layers in a config.json
_DEEP = 256  # models of fewer layers are built in seconds
_UNLIMITED = 1 << 40  # what a tokenizer without a longest text says is more than this


@dataclass(frozen=True, kw_only=True)
class WatchedModel:
    """A model that was watched while it read one input.

    Attributes:
        title: Which model it is and where it lies, for a line of text.
        name: What to call it in a heading.
        text: What it read: the text, or the name of the image.
        seen: What it attended to, q and k kept.
        keys: For each layer that was seen, a name for each of its keys.
        queries: The same for its queries.
        is_part: Whether only some layers were chosen.
        grid: The image and its patches, where it read one.
    """

    title: str
    name: str
    text: str
    seen: Recording
    keys: Mapping[str, Sequence[str]]
    queries: Mapping[str, Sequence[str]]
    is_part: bool = False
    grid: PatchGrid | None = None

    def keys_of(self, layer: str) -> Sequence[str]:
        """The names of a layer's keys; it may be one of several calls of a module, as a table names it."""
        return self.keys[layer.partition(" call ")[0]]

    def queries_of(self, layer: str) -> Sequence[str]:
        """The names of its queries."""
        return self.queries[layer.partition(" call ")[0]]

    def sides_of(self, layer: str, sight: Sight) -> tuple[Sequence[str] | None, Sequence[str] | None]:
        """The names of its queries and keys for a picture; None for a side on which they don't stand."""
        queries, keys = self.queries_of(layer), self.keys_of(layer)
        return queries if len(queries) == sight.t else None, keys if len(keys) == sight.s else None


def is_model_folder(path: Path) -> bool:
    """Whether a folder holds a Hugging Face model."""
    return (path / "config.json").is_file()


def open_folder(folder: Path) -> "FolderModel":
    """Load a model and what it reads with: a tokenizer, or an image processor.

    Args:
        folder: Has config.json, weights in safetensors files, and a tokenizer or a preprocessor_config.json.
    """
    _check(folder)
    with _quiet_and_offline():
        transformers = _transformers()
        model = _model(transformers, folder)
        if is_vision_model(model):
            reader = _image_processor(transformers, folder)
        elif not any(path for pattern in _TOKENIZERS for path in folder.glob(pattern)):
            raise ValueError(
                f"there is no tokenizer in {folder}, expected tokenizer.json; "
                "tokenizer.save_pretrained writes one"
            )
        else:
            reader = _loaded(f"the tokenizer in {folder}", transformers.AutoTokenizer, folder)
    return FolderModel(folder=folder, model=model, reader=reader)


@dataclass(frozen=True, kw_only=True, eq=False)
class FolderModel:
    """A model that was loaded from a folder.

    Attributes:
        folder: Where it lies.
        model: The model.
        reader: Its tokenizer, or its image processor.
    """

    folder: Path
    model: Any
    reader: Any

    def watch(self, given: str | Path | Tensor, chosen: Callable[[str], bool]) -> WatchedModel:
        """Watch it read once.

        Args:
            given: A text, the path of an image, or its pixels, bytes (3, h, w).
            chosen: Whether to look at the layer of this name.
        """
        if not _reads_both(self.model) and self.reads_images != (not isinstance(given, str)):
            reads, got = ("images", "the text") if isinstance(given, str) else ("texts", "the image")
            remedy = "name the file of an image" if reads == "images" else "give it a text"
            said = "" if isinstance(given, Tensor) else f" {str(given)!r}"
            raise ValueError(f"the model in {self.folder} reads {reads}, got {got}{said}; {remedy}")
        with _quiet_and_offline():
            watched = self._read(given, chosen) if isinstance(given, str) else self._look_at(given, chosen)
        if watched.seen.full:
            raise ValueError(
                f"{self.folder} attends more than memory should hold; look at a part of it with --layer"
            )
        return watched

    @property
    def reads_images(self) -> bool:
        """Whether it reads images; else texts."""
        return is_vision_model(self.model)

    def _look_at(self, given: Path | Tensor, chosen: Callable[[str], bool]) -> WatchedModel:
        model, reader = self.model, self.reader
        if _reads_both(model):
            model, reader = model.vision_model, _image_processor(_transformers(), self.folder)
        pixels, grid = read_pixels(given, reader, model)
        with torch.inference_mode(), watch(self.model, layers=chosen, keep=True) as seen:
            model(pixel_values=pixels)
        sides = {name: (grid.names(calls[0].t), grid.names(calls[0].s)) for name, calls in seen.items()}
        return self._watched(given.name if isinstance(given, Path) else "an image", seen, sides, grid)

    def _read(self, text: str, chosen: Callable[[str], bool]) -> WatchedModel:
        """An encoder-decoder reads the text on both sides, the decoder one token late, as in training."""
        tokenizer = self.reader
        model = self.model.text_model if _reads_both(self.model) else self.model
        ids = tokenizer(text)["input_ids"]
        if not ids:
            raise ValueError(f"the tokenizer in {self.folder} finds no token in the text {text!r}")
        most = _longest(model, tokenizer)
        if len(ids) > most:
            raise ValueError(
                f"the model in {self.folder} reads at most {most} tokens, got {len(ids)}; give it a shorter "
                "text"
            )
        inputs = {"input_ids": ids}
        if model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = [_start(model), *ids[:-1]]
        with torch.inference_mode(), watch(self.model, layers=chosen, keep=True) as seen:
            model(**{name: torch.tensor([x]) for name, x in inputs.items()})
        tokens = {name: [str(t) for t in tokenizer.convert_ids_to_tokens(x)] for name, x in inputs.items()}
        decoded = tokens.get("decoder_input_ids", tokens["input_ids"])
        sides = {}
        for name, sights in seen.items():
            queries = decoded if name.startswith("decoder") else tokens["input_ids"]
            sides[name] = (queries, decoded if _is_decoder(name, inputs, sights[0]) else tokens["input_ids"])
        return self._watched(text, seen, sides)

    def _watched(
        self,
        text: str,
        seen: Recording,
        sides: Mapping[str, tuple[Sequence[str], Sequence[str]]],
        grid: PatchGrid | None = None,
    ) -> WatchedModel:
        return WatchedModel(
            title=f"{type(self.model).__name__} in {self.folder}",
            name=name_of(self.folder),
            text=text,
            seen=seen,
            queries={name: queries for name, (queries, _) in sides.items()},
            keys={name: keys for name, (_, keys) in sides.items()},
            grid=grid,
        )


def name_of(folder: Path) -> str:
    """What to call a model: the folder's name, or that of the nearest one above that says something.

    Example:
        >>> name_of(Path("hub/models--bert--tiny/snapshots/0f2b1c3d4e5f60718293a4b5c6d7e8f901234567"))
        'bert/tiny'
        >>> name_of(Path("site-packages/minilm/model"))
        'minilm'
    """
    for part in reversed(folder.absolute().parts):
        if part.startswith("models--"):
            return part.removeprefix("models--").replace("--", "/")
        if part.lower() not in _NAMELESS and not re.fullmatch("[0-9a-f]{32,}", part):
            return part
    return "a model"


def _check(folder: Path) -> None:
    """Refuse what can't be loaded, or should not be, before anything large is read."""
    if not any(folder.glob("*.safetensors")):
        pickled = sorted(path.name for pattern in _PICKLED for path in folder.glob(pattern))
        if pickled:
            raise ValueError(
                f"weights must be in safetensors files, got {pickled[0]!r} in {folder}: a pickled file can "
                "run code when it is loaded; whoever made it can save it anew with save_pretrained"
            )
        raise ValueError(f"there are no weights in {folder}, expected *.safetensors files beside config.json")
    for index in folder.glob("*.safetensors.index.json"):
        strange = [
            name
            for name in _json(index).get("weight_map", {}).values()
            if not str(name).endswith(".safetensors")
        ]
        if strange:
            raise ValueError(f"weights must be in safetensors files, {index} names {strange[0]!r}")
    _check_depth(folder, _json(folder / "config.json"))


def _check_depth(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse a config of more layers than there are weights for: each would be built first, for minutes."""
    from safetensors import SafetensorError, safe_open  # noqa: PLC0415 (where folders of weights are read)

    counts = [x for part in (config, *config.values()) if isinstance(part, Mapping) for x in part.items()]
    depth = [(name, n) for name, n in counts if _DEPTH.search(str(name)) and isinstance(n, int) and n > _DEEP]
    if not depth:
        return
    n_tensors = 0
    for path in folder.glob("*.safetensors"):
        try:
            with safe_open(path, framework="pt") as file:
                n_tensors += len(file.keys())
        except SafetensorError as problem:
            raise ValueError(f"{str(path)!r} is damaged: {problem}; copy it anew") from problem
    name, n = max(depth, key=lambda x: x[1])
    if n > n_tensors:
        raise ValueError(
            f"{folder / 'config.json'} asks for {name}={n}, but its weights are {n_tensors} tensors; "
            "copy both anew"
        )


def _json(path: Path) -> dict[str, Any]:
    read = read_json(path)
    if not isinstance(read, dict):
        raise ValueError(f"{path} must hold one JSON object, got {type(read).__name__}")  # noqa: TRY004
    return read


def _transformers() -> Any:
    try:
        import transformers  # noqa: PLC0415
    except ImportError:
        raise ValueError(
            "a Hugging Face folder needs transformers, which is not installed; pip install 'sightline[hf]'"
        ) from None
    return transformers


def _model(transformers: Any, folder: Path) -> Any:
    what = f"the model in {folder}"
    options = {"use_safetensors": True, "output_loading_info": True}
    try:
        model, report = _loaded(what, transformers.AutoModel, folder, attn_implementation="sdpa", **options)
    except ValueError as problem:
        if not _NO_SDPA.search(str(problem)):
            raise
        model, report = _loaded(what, transformers.AutoModel, folder, **options)
    missing = sorted(name for name in report["missing_keys"] if "pooler" not in name)
    if missing:
        raise ValueError(
            f"{what} lacks {len(missing)} of the tensors that its config.json asks for, such as "
            f"{missing[0]!r}"
        )
    return model.eval()


def _reads_both(model: Any) -> bool:
    """Whether a model reads a text with one part and an image with another, as CLIP does."""
    return all(isinstance(getattr(model, part, None), nn.Module) for part in ("text_model", "vision_model"))


def _image_processor(transformers: Any, folder: Path) -> Any:
    return _loaded(f"the image processor in {folder}", _processor_class(transformers, folder), folder)


def _processor_class(transformers: Any, folder: Path) -> Any:
    """The class that a folder names; ``AutoImageProcessor`` would ask for torchvision, single ones do not."""
    path = folder / "preprocessor_config.json"
    if not path.is_file():
        raise ValueError(
            f"there is no image processor in {folder}, expected preprocessor_config.json; "
            "processor.save_pretrained writes one"
        )
    about = _json(path)
    named = str(
        about.get("image_processor_type") or about.get("feature_extractor_type") or "ViTImageProcessor"
    )
    name = named.replace("FeatureExtractor", "ImageProcessor").removesuffix("Fast")
    if not name.endswith("ImageProcessor") or not hasattr(transformers, name):
        raise ValueError(f"{path} names the image processor {named!r}, which transformers does not have")
    return getattr(transformers, name)


def _loaded(what: str, auto: Any, folder: Path, **options: Any) -> Any:
    """Load from the folder and nowhere else, running no code that lies in it."""
    try:
        return auto.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False, **options)
    except Exception as problem:  # each library underneath has errors of its own
        lines = str(problem).strip().splitlines() or [type(problem).__name__]
        raise ValueError(f"can't load {what}: {lines[0].rstrip('.')}") from problem


def _longest(model: Any, tokenizer: Any) -> int:
    """The most tokens that the model has positions for."""
    most = [tokenizer.model_max_length] if tokenizer.model_max_length < _UNLIMITED else []
    most += [
        n
        for name in ("max_position_embeddings", "n_positions")
        if (n := getattr(model.config, name, None) or 0) > 0
    ]  # XLNet says -1
    for module in model.modules():  # some keep the first positions for padding
        reserved = getattr(getattr(module, "position_embeddings", None), "padding_idx", None)
        if reserved is not None:
            most.append(module.position_embeddings.num_embeddings - reserved - 1)
    return min(most, default=_UNLIMITED)


def _start(model: Any) -> int:
    known = (
        getattr(model.config, name, None)
        for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id")
    )
    return next((token for token in known if token is not None), 0)


def _is_decoder(name: str, inputs: dict[str, Any], sight: Any) -> bool:
    """Whether a layer's keys are the decoder's tokens."""
    return "decoder_input_ids" in inputs and name.startswith("decoder") and not is_cross(name, sight)


@contextmanager
def _quiet_and_offline() -> Iterator[None]:
    """Keep transformers from the network, and its bars, reports and warnings from the table's reader."""
    before = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"  # read when transformers is imported; local_files_only says it again
    try:
        logging = _transformers().utils.logging
        verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
        logging.set_verbosity_error()
        logging.disable_progress_bar()
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            logging.set_verbosity(verbosity)
            if bars:
                logging.enable_progress_bar()
    finally:
        os.environ.pop("HF_HUB_OFFLINE")
        if before is not None:
            os.environ["HF_HUB_OFFLINE"] = before
