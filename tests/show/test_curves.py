import pytest

from sightline.show.curves import curves, read_metrics

TABLE = (
    "step,epoch,loss,lr,val_loss,val_bleu4,val_rouge_l,val_cider\n"
    "5,0,3.5,0.1,,,,\n10,1,2.5,0.2,2.75,0.25,0.75,1.5\n15,1,1.5,0.3,,,,\n"
)


def panels(figure):
    return {ax.get_title(loc="left"): ax for ax in figure.axes}


def test_the_table_is_read_where_it_has_values(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(TABLE)
    found = read_metrics(path)
    assert found["loss"] == [(5, 3.5), (10, 2.5), (15, 1.5)]
    assert found["val_loss"] == [(10, 2.75)]
    assert found["val_cider"] == [(10, 1.5)]


def test_losses_shares_and_what_is_larger_than_one(tmp_path):
    path = tmp_path / "metrics.csv"
    path.write_text(TABLE)
    found = panels(curves(read_metrics(path)))
    assert list(found) == ["Loss", "Scores on unseen data", "cider on unseen data: 1.500 at best"]
    assert [line.get_label() for line in found["Loss"].lines] == ["in training", "on unseen data"]
    legend = found["Scores on unseen data"].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == ["rouge_l 0.750", "bleu4 0.250"]


def test_a_self_critical_stage_is_drawn_apart():
    metrics = {
        "loss": [(3.0, 3.5), (7.0, 2.5), (11.0, -0.02), (13.0, 0.01)],
        "val_loss": [(7.0, 2.75), (13.0, 3.25)],
        "reward": [(11.0, 0.75), (13.0, 0.875)],
        "val_bleu4": [(7.0, 0.25), (13.0, 0.5)],
    }
    found = panels(curves(metrics))
    assert list(found) == [
        "Loss",
        "Reward in training, self-critical stage",
        "bleu4 on unseen data: 0.500 at best",
    ]
    border, learned, unseen = found["Loss"].lines
    assert list(learned.get_ydata()) == [3.5, 2.5]
    assert list(unseen.get_ydata()) == [2.75, 3.25]
    assert list(border.get_xdata()) == [7, 7]
    assert border.get_label() == "self-critical from here"
    (reward,) = found["Reward in training, self-critical stage"].lines
    assert list(reward.get_ydata()) == [0.75, 0.875]
    one, other = curves(metrics, stacked=True).axes[:2]
    assert one.get_position().y0 > other.get_position().y1
    alone = curves({"loss": [(11.0, -0.02)], "reward": [(11.0, 0.75)]})
    assert list(panels(alone)) == ["Reward in training, self-critical stage"]


def test_many_points_get_a_running_mean():
    noisy = [(float(i), float(i % 2)) for i in range(201)]
    ax = curves({"loss": noisy}).axes[0]
    faint, mean = (line.get_ydata() for line in ax.lines)
    assert list(faint) == [value for _, value in noisy]
    assert all(abs(value - 0.5) < 0.1 for value in mean)


def test_the_best_is_marked_and_ends_no_later_than_the_last():
    ax = curves({"bleu4": [(1.0, 0.1), (2.0, 0.7), (3.0, 0.4)]}).axes[0]
    assert [tuple(line.get_xydata()[0]) for line in ax.lines if len(line.get_xdata()) == 1] == [(2, 0.7)]


@pytest.mark.bad_input
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("epoch,loss\n1,2\n", "must have a column 'step', got .'epoch', 'loss'."),
        ("", "must have a column 'step', got None"),
        ("step,loss\n1,2\n2,many\n", "line 3 of .* must hold numbers, got 'many'"),
        ("step,loss\n,2\n", "line 2 of .* must hold numbers, got ''"),
    ],
)
def test_tables_that_are_damaged(tmp_path, text, words):
    path = tmp_path / "metrics.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_metrics(path)


@pytest.mark.bad_input
def test_no_table(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no metrics.csv in .* was anything trained there"):
        read_metrics(tmp_path / "metrics.csv")


@pytest.mark.bad_input
def test_nothing_to_draw():
    with pytest.raises(ValueError, match="nothing to draw"):
        curves({"lr": [(1, 2)], "loss": []})


def test_a_loss_of_one_point_is_a_dot():
    once = curves({"loss": [(7.0, 2.0)], "val_loss": [(7.0, 3.0)]}).axes[0].lines
    assert [line.get_marker() for line in once] == ["o", "o"]
    several = curves({"loss": [(7.0, 2.0), (11.0, 1.0)]}).axes[0].lines
    assert [line.get_marker() for line in several] == ["None"]
