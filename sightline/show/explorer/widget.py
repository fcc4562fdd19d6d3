"""The explorer in a notebook: an anywidget that asks Python for each level when it is looked at."""

import importlib.util
from typing import Any

from sightline.show.explorer.answers import Answers
from sightline.show.explorer.assets import script, style
from sightline.show.explorer.layers import Shown

__all__ = ["live_views", "make_widget", "reply"]

_RENDER = """
export default {
  render({ model, el }) {
    const waiting = new Map();
    let number = 0;
    const hear = (message) => {
      const own = waiting.get(message.number);
      if (!own) return;
      waiting.delete(message.number);
      if (message.error === undefined) own.resolve(message.answer);
      else own.reject(new Error(message.error));
    };
    model.on("msg:custom", hear);
    const ask = (request) => new Promise((resolve, reject) => {
      waiting.set(++number, { resolve, reject });
      model.send({ number, request });
    });
    const root = document.createElement("div");
    el.append(root);
    const explorer = mount(root, { meta: model.get("meta"), ask });
    return () => { model.off("msg:custom", hear); explorer.unmount(); };
  },
};
"""


def make_widget(answers: Answers) -> Any:
    """A widget that shows what the answers are about.

    Raises:
        ImportError: If anywidget is not installed.
    """
    import anywidget  # noqa: PLC0415
    import traitlets  # noqa: PLC0415

    class ExplorerWidget(anywidget.AnyWidget):
        _esm = script() + _RENDER
        _css = style()
        meta = traitlets.Dict().tag(sync=True)

    widget = ExplorerWidget(meta=answers.meta())
    widget.on_msg(lambda own, content, _: own.send(reply(answers, content)))
    return widget


def live_views(shown: Shown) -> Any:
    """The widget that a notebook shows of something; None where views would have no answers.

    That is without anywidget, and where q and k were not kept.
    """
    if importlib.util.find_spec("anywidget") is None:
        return None
    try:
        answers = Answers(shown)
    except (ValueError, TypeError):  # nothing was seen; its text says why
        return None
    if not all(layer.sight.kept for layer in answers.layers):
        return None
    return make_widget(answers)


def reply(answers: Answers, content: Any) -> dict[str, Any]:
    """The answer to a message of the widget, or the sentence that says why there is none."""
    number = content.get("number") if isinstance(content, dict) else None
    try:
        return {"number": number, "answer": answers.answer(content["request"])}
    except (ValueError, TypeError, KeyError) as problem:
        return {"number": number, "error": str(problem)}
