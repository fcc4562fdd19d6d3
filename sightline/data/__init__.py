"""Images, captions, sentence pairs, tokenizers, batches, and the embedded sets."""
