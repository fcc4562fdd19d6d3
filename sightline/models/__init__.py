"""The models: captioner, translator, recurrent translator, vision transformer."""
