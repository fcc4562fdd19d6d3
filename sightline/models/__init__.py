"""The models: captioner, translator, recurrent translator, vision transformer."""

from sightline.models.captioner import Captioner, CaptionerConfig
from sightline.models.rnn import RecurrentConfig, RecurrentTranslator
from sightline.models.translator import Translator, TranslatorConfig
from sightline.models.vit import VisionTransformer, VisionTransformerConfig

__all__ = [
    "Captioner",
    "CaptionerConfig",
    "RecurrentConfig",
    "RecurrentTranslator",
    "Translator",
    "TranslatorConfig",
    "VisionTransformer",
    "VisionTransformerConfig",
]
