"""The mechanism: attention as pure functions and small modules. Start with ``reference.py``."""
