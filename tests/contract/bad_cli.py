"""Bad command lines: what is typed, and words of the one sentence that answers. ``RUN`` is a finished run."""

from pathlib import Path

FIXTURES = Path(__file__).parents[1] / "fixtures" / "written_by_0_1"
CAPTION, TRANSLATE, CLASSIFY = (str(FIXTURES / x / "finished") for x in ("caption", "translate", "classify"))
IMAGE, TEXT = str(FIXTURES / "data" / "pictures" / "00.png"), "3 May 1999"

CLI = {
    # commands and flags
    "sightline(command): unknown": (["trian"], "trian", "train"),
    "sightline(option): unknown": (["--verbos"], "--verbos"),
    "sightline train(kind): unknown": (["train", "classfy"], "classfy", "classify"),
    # train
    "sightline train caption(--data): missing": (["train", "caption", "--out", "x"], "--data"),
    "sightline train caption(--data): nothing there": (
        ["train", "caption", "--data", "nowhere", "--out", "x"], "nowhere",
    ),
    "sightline train caption(--preset): unknown": (
        ["train", "caption", "--data", "scenes", "--preset", "tiny-ish", "--out", "x"], "tiny-ish",
    ),
    "sightline train classify(--metric): unknown": (
        ["train", "classify", "--data", "digits", "--metric", "beauty", "--out", "x"], "beauty", "expected one of",
    ),
    "sightline train classify(--lr): zero": (
        ["train", "classify", "--data", "digits", "--lr", "0", "--out", "x"], "lr", "0",
    ),
    "sightline train classify(--epochs): a text": (
        ["train", "classify", "--data", "digits", "--epochs", "many", "--out", "x"], "--epochs", "many",
    ),
    "sightline train classify(--d-model): no divisor": (
        ["train", "classify", "--data", "digits", "--d-model", "10", "--n-heads", "3", "--out", "x"], "10", "3",
    ),
    "sightline train translate(--dropout): one": (
        ["train", "translate", "--data", "dates", "--dropout", "1", "--out", "x"], "dropout", "1",
    ),
    "sightline train translate(--no-such): unknown": (
        ["train", "translate", "--data", "dates", "--d-modle", "8", "--out", "x"], "--d-modle",
    ),
    "sightline train translate(--device): unknown": (
        ["train", "translate", "--data", "dates", "--device", "gpu", "--out", "x"], "gpu",
    ),
    # evaluate
    "sightline evaluate(run): nothing there": (["evaluate", "nowhere"], "nowhere"),
    "sightline evaluate(run): no run": (["evaluate", str(FIXTURES)], "written_by_0_1"),
    "sightline evaluate(--split): unknown": (["evaluate", CAPTION, "--split", "tset"], "tset", "test"),
    "sightline evaluate(--beam): zero": (["evaluate", CAPTION, "--beam", "0"], "beam", "0"),
    "sightline evaluate(--limit): zero": (["evaluate", CAPTION, "--limit", "0"], "0"),
    "sightline evaluate(--batch-size): a text": (["evaluate", CAPTION, "--batch-size", "x"], "--batch-size", "integer"),
    "sightline evaluate(--data): nothing there": (["evaluate", CAPTION, "--data", "nowhere"], "nowhere"),
    # predict
    "sightline caption(input): nothing there": (["caption", CAPTION, "nowhere.png"], "nowhere.png"),
    "sightline caption(input): missing": (["caption", CAPTION], "IMAGE"),
    "sightline caption(run): of another kind": (["caption", TRANSLATE, IMAGE], "translate"),
    "sightline caption(--n-best): more than beams": (
        ["caption", CAPTION, IMAGE, "--n-best", "5", "--beam", "2"], "5", "2",
    ),
    "sightline caption(--temperature): negative": (
        ["caption", CAPTION, IMAGE, "--temperature", "-1"], "temperature", "-1",
    ),
    "sightline caption(--out): no figure": (["caption", CAPTION, IMAGE, "--out", "x.doc"], "x.doc"),
    "sightline translate(run): of another kind": (["translate", CAPTION, TEXT], "caption"),
    "sightline translate(--beam): a text": (["translate", TRANSLATE, TEXT, "--beam", "x"], "--beam", "x"),
    "sightline classify(run): of another kind": (["classify", CAPTION, IMAGE], "caption"),
    "sightline classify(--top): zero": (["classify", CLASSIFY, IMAGE, "--top", "0"], "top", "0"),
    # look
    "sightline look(run): nothing there": (["look", "nowhere", IMAGE], "nowhere"),
    "sightline look(input): nothing there": (["look", CAPTION, "nowhere.png"], "nowhere.png"),
    "sightline look(--layer): unknown": (["look", CAPTION, IMAGE, "--layer", "99", "--json"], "99"),
    "sightline look(--head): too far": (["look", CAPTION, IMAGE, "--head", "9", "--out", "x.png"], "9"),
    "sightline look(--out): no figure": (["look", CAPTION, IMAGE, "--out", "x.doc"], "x.doc"),
    "sightline look(--device): unknown": (["look", CAPTION, IMAGE, "--device", "gpu"], "gpu"),
    # the rest
    "sightline positions(--length): zero": (["positions", "--length", "0", "--d-model", "8"], "length", "0"),
    "sightline positions(--d-model): a text": (["positions", "--length", "5", "--d-model", "x"], "--d-model", "integer"),
    "sightline data check(data): nothing there": (["data", "check", "nowhere"], "nowhere"),
    "sightline serve(run): nothing there": (["serve", "nowhere"], "nowhere"),
    "sightline serve(--port): too large": (["serve", CAPTION, "--port", "70000"], "65535", "70000"),
    "sightline serve(--host): unknown": (["serve", CAPTION, "--host", "no.such.host.invalid"], "no.such.host"),
    "sightline demo(--out): a file": (["demo", "--out", __file__], "bad_cli.py"),
}  # fmt: skip
