"""A tiny BERT in a Hugging Face folder, and ``sightline look`` on one."""

import pytest
import torch

from tests.command import run as run_command

transformers = pytest.importorskip("transformers")
tokenizers = pytest.importorskip("tokenizers")

TEXT = "the cat sat on <b>&amp;</b> $x$ mat"
WORDS = ["[UNK]", "[CLS]", *TEXT.split(), "because", "it", "was", "tired"]
SIZES = {"vocab_size": len(WORDS), "hidden_size": 12, "num_hidden_layers": 2, "num_attention_heads": 3}
BERT = {**SIZES, "intermediate_size": 7, "max_position_embeddings": 11}


def save(folder, model):
    model.save_pretrained(folder)
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(WORDS)}, "[UNK]")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    words.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A", special_tokens=[("[CLS]", 1)]
    )
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return folder


def save_bert(folder):
    torch.manual_seed(0)
    return save(folder, transformers.BertModel(transformers.BertConfig(**BERT)))


def run(*args, stdin=""):
    return run_command("look", *args, stdin=stdin)
