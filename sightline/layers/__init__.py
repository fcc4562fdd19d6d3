"""The Transformer's layers, under torch's names and with torch's checkpoints.

``parts.py`` -> ``encoder.py`` -> ``decoder.py`` -> ``transformer.py``
"""

from sightline.layers.decoder import TransformerDecoder, TransformerDecoderLayer
from sightline.layers.encoder import TransformerEncoder, TransformerEncoderLayer
from sightline.layers.transformer import Transformer

__all__ = [
    "Transformer",
    "TransformerDecoder",
    "TransformerDecoderLayer",
    "TransformerEncoder",
    "TransformerEncoderLayer",
]
