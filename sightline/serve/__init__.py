"""A page for a model: give it an image or a text, and see what it attended to. ``sightline serve``.

guard.py      who may speak to it: Host, Origin, the token, the headers of every answer
uploads.py    what comes in: bounded in bytes, pixels and formats, decoded in memory
worker.py     one thread runs the model, a bounded queue stands before it
results.py    the last results, by ids that nobody guesses
model.py      a run or a Hugging Face folder, as the page asks it
app.py        the addresses, put together
server.py     the socket, and an end within a second
"""

try:
    import fastapi  # noqa: F401
    import python_multipart  # noqa: F401
    import uvicorn  # noqa: F401
except ImportError as missing:
    raise ImportError(
        f"sightline serve needs {missing.name}, which is not installed; pip install 'sightline[serve]'",
        name=missing.name,
    ) from missing
