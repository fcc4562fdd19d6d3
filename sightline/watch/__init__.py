"""Watching any model: its attention calls are intercepted, read and measured; they fill a recording."""
