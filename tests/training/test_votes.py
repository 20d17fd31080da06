"""Labels of several annotators, distributions, and missing ones, in every call that trains."""

import keras
import numpy as np
import pytest
from scipy.special import softmax

import keras_het
from keras_het.label_noise import dawid_skene, majority_vote
from keras_het.training import DEFAULTS, AnnotatorTransitions, LinearDiscriminant, MajorityVote
from keras_het.training.candidates import OF_VOTES
from keras_het.training.data import read
from keras_het.training.labels import most_probable, read_labels
from keras_het.training.vote_issues import judged, vote_issues, who_labels_how

pytestmark = pytest.mark.once

RNG = np.random.default_rng(0)
TRUE = RNG.integers(3, size=240)
X = (np.eye(3)[TRUE] * 3 + RNG.normal(size=(240, 3))).astype("float32")
RATES = np.array([0.9, 0.8, 0.8, 0.4])  # of right labels
VOTES = np.where(RNG.random((240, 4)) < RATES, TRUE[:, None], RNG.integers(3, size=(240, 4)))
VOTES[RNG.random((240, 4)) < 0.4] = -1
VOTES[(VOTES < 0).all(axis=1), 0] = 0
NAMES = np.array(["cat", "dog", "owl"])
NOBODY = [5, 17]


def chosen(y, x=X, **arguments):
    return keras_het.choose(None, x, y, **{"epochs": 4, "folds": 2, "verbose": 0, **arguments})


@pytest.mark.parametrize(
    "y",
    [
        VOTES,
        np.where(VOTES < 0, np.nan, VOTES),
        np.where(VOTES < 0, None, VOTES),
        np.where(VOTES < 0, None, NAMES[VOTES]),
        np.where(VOTES < 0, np.nan, NAMES[VOTES].astype(object)),
        [[None if vote < 0 else NAMES[vote] for vote in row] for row in VOTES],
    ],
)
def test_votes_are_read_whatever_stands_for_none(y):
    found = read_labels(y, 240)
    np.testing.assert_array_equal(found.votes, VOTES)
    np.testing.assert_array_equal(found.y, most_probable(VOTES, 3).argmax(axis=1))
    assert found.classes.tolist() in ([0, 1, 2], NAMES.tolist())


def test_a_frame_of_votes_brings_the_names_of_the_annotators():
    pandas = pytest.importorskip("pandas")  # the session `tests` has it
    frame = pandas.DataFrame(np.where(VOTES < 0, None, NAMES[VOTES]), columns=list("abcd"))
    assert read_labels(frame).annotators.tolist() == list("abcd")
    long = frame.melt(ignore_index=False, var_name="who", value_name="says").reset_index(names="item")
    found = keras_het.label_noise.votes_from_table(long, "item", "who", "says", tasks=range(240))
    np.testing.assert_array_equal(read_labels(found, 240).votes, VOTES)


def test_examples_without_a_vote_are_left_out_and_keep_their_places():
    votes = VOTES.copy()
    votes[NOBODY] = -1
    found = read(X, votes)
    kept = np.setdiff1d(np.arange(240), NOBODY)
    np.testing.assert_array_equal(found.x, X[kept])
    np.testing.assert_array_equal(found.index, kept)
    assert found.of_labelled(list(range(240))) == kept.tolist()
    assert found.made_of.endswith("annotators, of 238 examples, and 2 without one, which are left out")


def test_a_verified_example_without_a_vote_counts_and_all_votes_are_held_to_it():
    votes = VOTES.copy()
    votes[NOBODY] = -1
    found = read(X, votes, verified_labels={5: 1, 7: (VOTES[7].max() + 1) % 3})
    assert len(found.y) == 239
    np.testing.assert_array_equal(found.target[5], np.eye(3)[1])
    np.testing.assert_array_equal(found.evidence[5], np.eye(3)[1])
    assert found.trust[5] == found.trust.max() == (VOTES >= 0).sum(axis=1).max()
    candidate = AnnotatorTransitions()
    labels = candidate.labels(found, None)
    assert labels.shape == (239, 5)
    assert labels[5].tolist() == [-1, -1, -1, -1, 1]
    (flips,) = candidate.tail(found, None)
    flips.build((None, 3))
    np.testing.assert_allclose(keras.ops.convert_to_numpy(flips.transition)[4], np.eye(3), atol=0.01)
    issues = vote_issues(softmax(found.x, axis=1), found)
    own = issues.index == 7
    assert own.sum() == (VOTES[7] >= 0).sum()
    assert issues.is_issue[own].all()
    assert set(issues.kind[own]) == {"wrong"}


def test_votes_go_with_the_index_of_a_frame():
    pandas = pytest.importorskip("pandas")  # the session `tests` has it
    frame = pandas.DataFrame({"item": list("bbaa"), "who": ["x", "y", "x", "y"], "says": [0, 0, 1, 1]})
    found = keras_het.label_noise.votes_from_table(frame, "item", "who", "says")
    with pytest.raises(ValueError, match="have the examples of `x` in their order: votes_from_table"):
        read(pandas.DataFrame({"f": [0.0, 1.0]}, index=["b", "a"]), found)
    assert read(pandas.DataFrame({"f": [0.0, 1.0]}, index=["a", "b"]), found).y.tolist() == [1, 0]


def test_nan_in_lists_of_names_is_no_class():
    assert read_labels([["cat", np.nan], ["dog", "cat"], [-1, "dog"]]).classes.tolist() == ["cat", "dog"]


def test_blank_rows_of_distributions_are_examples_without_a_label():
    soft = softmax(X, axis=1)
    soft[NOBODY] = np.nan
    found = read(X, soft)
    assert found.votes is None
    assert len(found.y) == 238
    np.testing.assert_allclose(found.target, soft[np.setdiff1d(np.arange(240), NOBODY)], atol=1e-6)


def test_who_is_not_among_those_with_a_vote_has_nan_out_of_sample():
    votes = VOTES.copy()
    votes[NOBODY] = -1
    p = keras_het.training.cross_val_probabilities(None, X, votes, verbose=0)
    assert np.flatnonzero(np.isnan(p).any(axis=1)).tolist() == NOBODY
    again = keras_het.clean_labels(None, X, votes, probabilities=p, verbose=0)
    assert len(again.probabilities) == 238
    places = np.setdiff1d(np.arange(240), NOBODY)
    assert np.sort(again.issues.index).tolist() == places.tolist()
    by_place = dict(zip(again.issues.index, again.issues.given, strict=True))
    assert by_place[18] == again.data.y[16]
    issues = again.vote_issues
    np.testing.assert_array_equal(votes[issues.index, issues.annotator], issues.given)
    again.retrain("correct")
    assert set(again.surest.tolist()) <= set(again.issues.index[again.issues.is_issue].tolist())


def test_complete_votes_of_integers_are_votes():
    complete = np.where(VOTES < 0, TRUE[:, None], VOTES)
    assert read_labels(complete).votes.shape == (240, 4)
    assert read_labels(np.where(VOTES < 0, "", NAMES[VOTES])).classes.tolist() == NAMES.tolist()


def test_distributions_and_counts_are_soft_labels():
    counts = np.stack([(k == VOTES).sum(axis=1) for k in range(3)], axis=1).astype(float)
    found = read(X, counts)
    np.testing.assert_allclose(found.target, majority_vote(VOTES, 3, shares=True), atol=1e-6)
    assert found.votes is None
    one = read(X, np.eye(3)[TRUE])  # vectors with a single 1 are labels
    np.testing.assert_array_equal(one.target, TRUE)


@pytest.mark.parametrize(
    ("y", "said"),
    [
        (np.full((240, 4), -1), "`y` must have at least one label. Received: none"),
        (np.where(np.arange(4) == 0, -2, VOTES), "`y` must"),
        (VOTES[:100], "`y` must have a row for each of the 240 examples. Received: 100"),
        (VOTES.T, "`y` must have a row for each of the 240 examples (np.transpose(y), if rows are annotators)"),
        (np.where(VOTES < 0, np.nan, VOTES)[:, :1], "none at [8]: leave such examples out, inputs and labels"),
        (np.where(VOTES < 0, -1, 0), "`y` must be of at least two classes. Received: 1"),
        (np.full((240, 3), -0.5), "`y` must be distributions or counts, not negative"),
        (np.stack([(k == VOTES).sum(axis=1) for k in range(3)], axis=1), "are they counts of 3 classes? Give floats"),
        (np.where(VOTES > 0, 1.0, 0.0), "`y` must be integers for votes; or, for counts, have no row without any"),
    ],
)
@pytest.mark.refusal
def test_what_is_no_vote_is_refused(y, said):
    with pytest.raises(ValueError) as error:
        read(X, y)
    assert said in str(error.value)


def test_rules_that_say_one_class_each_are_counted_and_others_weighed():
    rules = np.where(RNG.random((240, 3)) < 0.5, np.arange(3), -1)
    rules[:, 0] = np.where((rules < 0).all(axis=1), 0, rules[:, 0])
    np.testing.assert_allclose(most_probable(rules, 3), majority_vote(rules, 3, shares=True))
    np.testing.assert_allclose(most_probable(VOTES, 3), dawid_skene(VOTES, 3).probabilities)
    loose = rules.copy()
    loose[:12, 1] = 2  # a rule that names another class now and then is still one
    np.testing.assert_allclose(most_probable(loose, 3), majority_vote(loose, 3, shares=True))
    ties = read_labels(np.tile([[0, 1, -1]], (240, 1))).y
    assert 80 < ties.sum() < 160  # of equal votes not always the first


def test_held_out_votes_measure_and_what_is_trained_on_has_not_seen_them():
    task = read(X, VOTES)
    part = task.take(np.arange(100))
    np.testing.assert_allclose(part.distribution, most_probable(VOTES[:100], 3), atol=1e-6)
    np.testing.assert_allclose(part.evidence, majority_vote(VOTES[:100], 3, shares=True), atol=1e-6)
    assert part.trust.tolist() == (VOTES[:100] >= 0).sum(axis=1).tolist()


@pytest.mark.smoke
def test_the_choice_by_votes_predicts_the_classes_and_names_the_wrong_votes():
    others = [LinearDiscriminant(), MajorityVote(), AnnotatorTransitions()]
    found = chosen(VOTES, epochs=6, candidates=others)
    assert (*DEFAULTS, *OF_VOTES)[-2:] == OF_VOTES
    names = [score.name for score in found.table]
    assert names[-2:] == [MajorityVote().name, AnnotatorTransitions().name]
    assert np.mean(found.model.predict(X, verbose=0).argmax(axis=1) == TRUE) > 0.93
    issues = found.vote_issues
    wrong = VOTES[issues.index, issues.annotator] != TRUE[issues.index]
    assert len(issues.index) == (VOTES >= 0).sum()
    assert np.mean(wrong == issues.is_issue) > 0.93
    assert set(issues.kind[issues.is_issue]) <= {"wrong", "ambiguous"}
    assert f"labels: {len(wrong)} of 4 annotators, of 240 examples" in str(found)
    head = str(issues).splitlines()[0].split()
    assert head == ["index", "annotator", "given", "suggested", "score", "kind"]


def test_labels_are_cleaned_by_votes():
    found = keras_het.clean_labels(None, X, np.where(VOTES < 0, None, NAMES[VOTES]), verbose=0)
    assert np.mean(found.model.predict(X, verbose=0).argmax(axis=1) == TRUE) > 0.93
    assert found.classes.tolist() == NAMES.tolist()
    corrected = found.retrain("correct")
    assert np.mean(corrected.predict(X, verbose=0).argmax(axis=1) == TRUE) > 0.93


def test_corrections_in_the_table_of_a_report_come_back_as_verified_labels(tmp_path):
    pandas = pytest.importorskip("pandas")
    votes = np.where(VOTES < 0, None, NAMES[VOTES])
    votes[NOBODY] = None
    rows = pandas.Index([f"r{n}" for n in range(240)])
    for x, y, key in ((X, votes, 5), (pandas.DataFrame(X, rows), pandas.DataFrame(votes, rows), "r5")):
        found = keras_het.clean_labels(None, x, y, verified_labels={key: "dog"}, verbose=0)
        path = tmp_path / str(key) / "labels.csv"
        found.report(path.parent)
        table = pandas.read_csv(path)
        table["corrected"] = table.corrected.astype(object)
        table.loc[[0, 3], "corrected"] = ["owl", "cat"]
        table.to_csv(path, index=False)
        first, second = (found.issues.index[place] for place in (0, 3))
        expected = {first: "owl", second: "cat"} if x is X else {f"r{first}": "owl", f"r{second}": "cat"}
        verified = keras_het.analysis.apply_corrections(found, path.parent)
        assert verified == expected
        assert read(x, y, verified_labels=verified).verified.sum() == 2
    with pytest.raises(ValueError, match="for several annotators, the result of `choose` or `clean_labels` itself"):
        keras_het.analysis.apply_corrections(VOTES, path)


def test_a_report_has_a_line_for_each_annotator_the_worst_first():
    task, p = read(X, np.where(VOTES < 0, None, NAMES[VOTES])), softmax(X, axis=1)
    issues = vote_issues(p, task)
    lines = who_labels_how(task, issues)
    first = issues.annotator == 3
    wrong = issues.is_issue[first].sum()
    assert lines[0][:3] == ["3", str(first.sum()), f"{wrong} ({wrong / first.sum():.0%})"]
    assert [float(line[3]) for line in lines] == sorted(float(line[3]) for line in lines)
    assert all(" to " in line[4] and " for " in line[5] for line in lines)
    rules = read(X, np.where(RNG.random((240, 3)) < 0.5, np.arange(3), -1))
    assert [line[3:] for line in who_labels_how(rules, vote_issues(p[: len(rules.y)], rules))] == [["-", "", ""]] * 3


def test_a_verified_label_is_certain_whatever_the_votes_say():
    task = read(X, VOTES, verified_labels={0: 1, 7: 2})
    for shares in (task.distribution, task.evidence):
        np.testing.assert_array_equal(shares[[0, 7]], np.eye(3)[[1, 2]])
    again = task.corrected(np.where(np.arange(240) == 3, (task.y + 1) % 3, task.y))
    np.testing.assert_array_equal(again.distribution[3], np.eye(3)[(task.y[3] + 1) % 3])


def test_the_estimator_takes_votes():
    given = {"hidden": (), "epochs": 4, "folds": 2, "trainings": 4, "learning_rate": 0.2, "random_state": 0}
    classifier = keras_het.NoisyLabelClassifier(**given).fit(X, np.where(VOTES < 0, None, NAMES[VOTES]))
    assert classifier.classes_.tolist() == NAMES.tolist()
    assert np.mean(classifier.predict(X) == NAMES[TRUE]) > 0.9


def test_tune_takes_votes_with_the_loss_of_several_annotators():
    def make(strength):
        keras.utils.set_random_seed(0)
        penalty = keras.regularizers.L2(strength)
        flips = keras_het.layers.NoiseTransition(3, num_annotators=4, regularizer=penalty)
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "log_softmax"), flips])
        model.compile(keras.optimizers.Adam(0.2), keras_het.losses.AnnotatorsLoss())
        return model

    found = keras_het.tune(make, (0.001, 0.01), X, VOTES, epochs=8, extend=False, verbose=0)
    assert np.mean(found.model.predict(X, verbose=0).argmax(axis=1) == TRUE) > 0.9


@pytest.mark.refusal
def test_votes_beside_what_takes_one_label_are_refused_with_the_way():
    def make(loss):
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(3, "softmax")])
        model.compile("adam", loss)
        return model

    arguments = {"epochs": 1, "verbose": 0}
    text = r"with `losses\.AnnotatorsLoss`, behind a `NoiseTransition` with num_annotators=%d .*majority_vote"
    for loss, y in (
        ("sparse_categorical_crossentropy", VOTES),
        ("categorical_crossentropy", VOTES[:, :3]),
        ("sparse_categorical_crossentropy", np.where(VOTES < 0, None, NAMES[VOTES])),
    ):
        with pytest.raises(ValueError, match=text % y.shape[1]):
            keras_het.tune(make, (loss,), X, y, **arguments)
    with pytest.raises(ValueError, match=r"240 examples \(np\.transpose"):
        keras_het.tune(make, ("mse",), X, VOTES.T, **arguments)
    with pytest.raises(ValueError, match=r"`y` must have a row for each of the 240 examples\. Received: 50"):
        keras_het.tune(make, ("mse",), X, TRUE[:50], **arguments)
    keras_het.tune(make, ("categorical_crossentropy",), X, np.eye(3, dtype="int32")[TRUE], **arguments, extend=False)
    with pytest.raises(ValueError, match="no NoiseTransition: a T of each annotator is a candidate of `choose`"):
        keras_het.choose(lambda: make(keras_het.losses.AnnotatorsLoss()), X, VOTES, **arguments)
    with pytest.raises(ValueError, match="`NoisyLabelClassifier` takes those of several annotators"):
        keras_het.HeteroscedasticClassifier().fit(X, VOTES)


@pytest.mark.refusal
def test_votes_are_asked_for_where_there_are_none():
    with pytest.raises(ValueError, match="`y` must be labels of several annotators"):
        chosen(TRUE, candidates=[AnnotatorTransitions()], epochs=15)
    with pytest.raises(ValueError, match="`vote_issues` must be of a result of labels of several annotators"):
        keras_het.clean_labels(None, X, TRUE, verbose=0).vote_issues  # noqa: B018
    with pytest.raises(ValueError, match="`validation_data` must have one label for each example, and no votes"):
        chosen(VOTES, validation_data=(X, VOTES))


def by_hand(p, votes):
    """The posterior of each example by loops."""
    size, (examples, who) = p.shape[1], np.nonzero(votes >= 0)
    counts = np.zeros((votes.shape[1], size, size))
    for n, m in zip(examples, who, strict=True):
        counts[m, :, votes[n, m]] += p[n]
    pooled = counts.sum(axis=0) + 1.0 / size
    t = counts + size * pooled / pooled.sum(axis=1, keepdims=True)
    t /= t.sum(axis=2, keepdims=True)
    q = p.copy()
    for n, m in zip(examples, who, strict=True):
        q[n] *= t[m, :, votes[n, m]]
    return q / q.sum(axis=1, keepdims=True), t


def test_votes_and_model_are_joined_as_by_hand(monkeypatch):
    monkeypatch.setattr("keras_het.training.vote_issues.MOST_VOTES", 100)  # in blocks
    p = softmax(X, axis=1).astype("float64")
    whole, others = judged(p, VOTES)
    expected, t = by_hand(p, VOTES)
    np.testing.assert_allclose(np.exp(whole), expected, atol=1e-9)
    for vote, (n, m) in enumerate(np.argwhere(VOTES >= 0)):
        without = expected[n] / t[m, :, VOTES[n, m]]
        np.testing.assert_allclose(np.exp(others[vote]), without[VOTES[n, m]] / without.sum(), atol=1e-9)


def test_votes_that_tie_are_ambiguous_unless_the_model_is_sure():
    votes, p = VOTES.copy(), softmax(X, axis=1)
    votes[:2] = [1, 2, -1, -1]
    p[:2] = [[0.02, 0.49, 0.49], [0.01, 0.98, 0.01]]
    found = vote_issues(p, read(X, votes))
    open_, settled = (found.index == n for n in (0, 1))
    assert sorted(found.kind[open_]) == ["", "ambiguous"]
    assert dict(zip(found.given[settled], found.kind[settled], strict=True)) == {1: "", 2: "wrong"}
    assert set(found.suggested[settled]) == {1}


@pytest.mark.planted
def test_a_vote_that_judges_itself_is_seen():
    p = softmax(X, axis=1).astype("float64")
    whole, others = judged(p, VOTES)
    n, m = np.nonzero(VOTES >= 0)
    assert np.abs(whole[n, VOTES[n, m]] - others).max() > 0.1


def test_two_heads_of_a_function_take_votes():
    def make():
        model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(8, "relu"), keras.layers.Dense(3, "softmax")])
        model.compile(keras.optimizers.Adam(0.2), "sparse_categorical_crossentropy")
        return model

    how = {"candidates": [AnnotatorTransitions()], "folds": 2, "verbose": 0}
    found = keras_het.choose(make, X, VOTES, epochs=8, **how)
    assert np.mean(found.model.predict(X, verbose=0).argmax(axis=1) == TRUE) > 0.9
