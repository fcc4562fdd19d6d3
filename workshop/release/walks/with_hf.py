"""A Hugging Face folder is looked into."""

from pathlib import Path

import tokenizers
import transformers
from refusals import command

words = ["[UNK]", "[CLS]", *["the", "cat", "sat", "on", "mat"]]
sizes = {
    "vocab_size": 7,
    "hidden_size": 12,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 7,
}
transformers.BertModel(transformers.BertConfig(**sizes)).save_pretrained("bert")
tokenizer = tokenizers.Tokenizer(
    tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, "[UNK]")
)
tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer).save_pretrained("bert")
command("look", "bert", "the cat sat on the mat", "--out", "page.html")
assert Path("page.html").is_file()
print("sightline look FOLDER TEXT")
