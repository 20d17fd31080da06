"""How good a model really is, by noisy labels and T: do the intervals and the sets hold what they promise?

python -m benchmarks.labels.truth [--tasks digits groups images "digits, flips by example"] [--seeds 0 1]
    [--output FOLDER] [--quick] [--render]

A network is trained once on noisy labels. Held-out examples with known classes are the population: a redraw takes 1,000
of them with replacement, and draws their labels anew, by T. So the true accuracy, calibration error and cover are
known. Labels are flipped to random other classes, 40% of them, by a T that differs from class to class; in the last
task to the class that an example looks most like, and the mean T is believed, wrongly. No clean label is used but to
score, and in the rows that say so.

Results are JSON lines, one for each task, seed and way, to which a later run adds what is missing.
"""

import functools
import time

import numpy as np

from benchmarks.labels import truth_report
from benchmarks.lib import harness, lines, tasks
from benchmarks.lib.corruption import random_flip
from benchmarks.lib.results import publish

COUNT, EPOCHS, NOISE, PENALTY = 1000, 12, 0.4, 0.03
BY_EXAMPLE = "digits, flips by example"
TASKS = {
    "digits": lambda seed: tasks.digits(0.0, seed),
    "groups": lambda seed: tasks.grouped(20, 100, 0.0, seed),
    "images": lambda seed: tasks.images(0.0, seed),
    BY_EXAMPLE: lambda seed: tasks.digits(0.0, seed),
}
KNOWN = "known"
WAYS = {  # how T comes about, and the redraws and samples of each
    KNOWN: (2000, 50),
    "learned by NoiseTransition": (300, 50),
    "confident joint": (300, 50),
    "20 clean labels a class": (300, 50),
    "3 annotators, Dawid and Skene": (50, 20),
}
CLEAN_ALONE = "the clean labels alone"
SETS = {  # arguments of each rule; the first is without a correction of the noise
    "ordinary": {"correction": None},
    "known T, LAC": {},
    "known T, LAC, no margin": {"correction": None},
    "known T, LAC, finite bound": {"correction": "finite"},
    "known T, APS": {"score": "aps"},
    "known T, RAPS": {"score": "raps"},
    "known T, LAC, each class": {"per_class": True},
    "20 clean labels a class, LAC": {},
    "confident joint, LAC": {},
}
CHECKS, SEVERAL, PILOT, POWER = 200, 500, 100, 0.9  # repeats, clean labels of a check and of a pilot


class Population:
    """Held-out examples, their true classes, what the model gives them, and how their labels are drawn."""

    def __init__(self, task, seed, epochs):
        from keras_het import label_noise

        data = TASKS[task](seed)
        held_out = (data.validation, data.test)
        x, self.y = (np.concatenate(parts) for parts in zip(*held_out, strict=True))
        self.size = data.units
        if task == BY_EXAMPLE:
            every = np.concatenate([data.train.x, x])
            rows = label_noise.look_alike_transitions(every, np.concatenate([data.train.y, self.y]), NOISE)
            trained, self.rows = rows[: len(data.train.x)], rows[len(data.train.x) :]
        else:
            t = random_flip(self.size, NOISE, [seed, 3])
            trained, self.rows = t[data.train.y], t[self.y]
        self.transition = np.stack([self.rows[self.y == k].mean(axis=0) for k in range(self.size)])
        self.raters = np.stack([random_flip(self.size, NOISE, [seed, 4, m]) for m in range(3)])
        noisy = draw(trained, np.random.default_rng([seed, 5]))
        self.p, self.learned = train(data, noisy, x, seed, epochs)
        self.right = self.p.argmax(axis=1) == self.y

    def sample(self, rng, count=COUNT):
        """Places of examples, with replacement, and their labels."""
        chosen = rng.integers(len(self.y), size=count)
        return chosen, draw(self.rows[chosen], rng)

    def clean(self, rng):
        """T counted on 20 examples a class on average, drawn at random, and their places."""
        from keras_het.truth import CountedTransition

        chosen, labels = self.sample(rng, 20 * self.size)
        return CountedTransition.from_labels(self.y[chosen], labels, self.size), chosen


def draw(rows, rng):
    """A label of each row, `(N, K)`."""
    return np.minimum((rows.cumsum(axis=1) < rng.random((len(rows), 1))).sum(axis=1), rows.shape[1] - 1)


def train(data, noisy, x, seed, epochs):
    """Probabilities of the noisy labels of x, by a network, and the T that a second one learns behind its own."""
    import keras

    from keras_het.layers import NoiseTransition

    def fitted(*more):
        keras.utils.set_random_seed(seed)
        below = data.backbone(data.train.x.shape[1:], lambda: keras.regularizers.L2(1e-3))
        model = keras.Sequential([*below, keras.layers.Dense(data.units, "log_softmax"), *more])
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(2e-3), loss)
        model.fit(data.train.x, noisy, batch_size=64, epochs=epochs, verbose=0)
        return model

    p = np.exp(fitted().predict(x, verbose=0).astype("float64"))
    layer = NoiseTransition(data.units, regularizer=keras.regularizers.L2(PENALTY))
    learned = keras.ops.convert_to_numpy(fitted(layer).layers[-1].transition)
    return p / p.sum(axis=1, keepdims=True), learned


def transition_of(way, population, rng):
    """T as this way knows it, in a form that `true_performance` takes."""
    from keras_het import label_noise

    if way.startswith(("known", "ordinary")):
        return population.transition if way.startswith("known") else np.eye(population.size)
    if way.startswith("learned"):
        return population.learned
    if way.startswith("confident"):
        return lambda p, y: label_noise.estimate_by_confident_joint(y, p)
    if way.startswith("20 clean"):
        return population.clean(rng)[0]
    return lambda p, y: label_noise.dawid_skene(y, population.size, 30, 1e-4).transitions


def performance(population, way, seed, redraws, draws):
    """How often the intervals hold the truth, over redraws."""
    from keras_het.explain import calibration
    from keras_het.truth import true_performance

    p, y = population.p, population.y
    truth = {
        "accuracy": population.right.mean(),
        "calibration_error": calibration(p, y, 10).error,
        "nll": -np.log(np.maximum(p[np.arange(len(y)), y], np.finfo("float32").tiny)).mean(),
    }
    found, refused = [], 0
    for redraw in range(redraws):
        rng = np.random.default_rng([seed, 6, redraw])
        chosen, labels = population.sample(rng)
        if way.startswith("3 annotators"):
            labels = np.stack([draw(t[y[chosen]], rng) for t in population.raters], axis=1)
        try:
            transition = transition_of(way, population, rng)
            found.append(true_performance(p[chosen], labels, transition, draws=draws, seed=redraw))
        except ValueError:
            refused += 1
    holds = {
        name: np.mean([(own := getattr(each, name)).low <= value <= own.high for each in found])
        for name, value in truth.items()
    }
    values = [each.accuracy.value for each in found]
    widths = [(each.accuracy.high - each.accuracy.low) / 2 for each in found]
    return {
        "redraws": len(found),
        "refused": refused,
        "holds": holds["accuracy"],
        "holds ECE": holds["calibration_error"],
        "holds NLL": holds["nll"],
        "true": truth["accuracy"],
        "value": np.mean(values),
        "deviation": np.std(values),
        "half width": np.mean(widths),
        "error of T": np.mean([each.transition_fraction for each in found]),
        "labels agree": np.mean([each.noisy_accuracy for each in found]),
    }


def clean_alone(population, seed, redraws):
    """The accuracy on as many clean labels as T is counted on, without any noisy label."""
    found = []
    for redraw in range(redraws):
        right = population.right[population.sample(np.random.default_rng([seed, 7, redraw]), 20 * population.size)[0]]
        found.append((right.mean(), 1.96 * np.sqrt(right.mean() * (1 - right.mean()) / len(right))))
    value, width = np.transpose(found)
    true = population.right.mean()
    return {
        "redraws": redraws,
        "refused": 0,
        "holds": np.mean(np.abs(value - true) <= width),
        "true": true,
        "value": value.mean(),
        "deviation": value.std(),
        "half width": width.mean(),
    }


def sets(population, rule, seed, redraws):
    """The cover of the true class, and the size of the sets, over redraws."""
    from keras_het.truth import conformal_sets

    cover, sizes, refused = [], [], 0
    for redraw in range(redraws):
        rng = np.random.default_rng([seed, 8, redraw])
        chosen, labels = population.sample(rng)
        try:
            transition = transition_of(rule, population, rng)
            found = conformal_sets(population.p[chosen], labels, transition, draws=30, seed=redraw, **SETS[rule])
        except ValueError:
            refused += 1
            continue
        own = found.sets(population.p)
        cover.append(own[np.arange(len(own)), population.y].mean())
        sizes.append(own.sum(axis=1).mean())
    return {
        "redraws": len(cover),
        "refused": refused,
        "cover": np.mean(cover),
        "deviation": np.std(cover),
        "size": np.mean(sizes),
    }


def checks(population, seed, repeats):
    """How often the check says no by 500 clean labels, and how many a pilot of 100 promises to find what there is."""
    from keras_het.truth import check_transition
    from keras_het.truth.corrected_weights import read_noisy

    def check(redraw, count, smallest=0.05):
        chosen, labels = population.sample(np.random.default_rng([seed, 9, redraw, count]), count)
        more = {"smallest": smallest, "power": POWER, "seed": [seed, redraw]}
        return check_transition(population.p[chosen], labels, population.transition, population.y[chosen], **more)

    inverse = read_noisy(population.p, population.y, population.transition).inverses[0]
    expected = np.einsum("nj,jn->n", population.rows, inverse[:, population.p.argmax(axis=1)])
    bias = float(np.mean(expected - population.right))
    said = [check(redraw, SEVERAL) for redraw in range(repeats)]
    found = {"bias": bias, "repeats": repeats, "says no": np.mean([each.holds is False for each in said])}
    if abs(bias) < 0.01:
        return found
    pilots = [check(repeats + redraw, PILOT, abs(bias)).tests for redraw in range(repeats)]
    for name, place in {"dependence": 0, "accuracy": 2}.items():
        count = int(np.median([tests[place].needed or np.inf for tests in pilots]))
        again = [check(2 * repeats + redraw, count).tests[place].p_value < 0.05 for redraw in range(repeats)]
        found |= {f"promised, {name}": count, f"found, {name}": np.mean(again)}
    return found


def figures(population, kind, way, seed, quick):
    """The line of one task, seed and way."""
    if kind == "check":
        return checks(population, seed, 5 if quick else CHECKS)
    if kind == "sets":
        return sets(population, way, seed, 5 if quick else 300)
    if way == CLEAN_ALONE:
        return clean_alone(population, seed, 5 if quick else 2000)
    redraws, draws = WAYS[way]
    return performance(population, way, seed, 5 if quick else redraws, 10 if quick else draws)


def wanted(task):
    """(kind, way) of a task, the cheap and important ones first."""
    found = [("accuracy", KNOWN), ("sets", "ordinary"), ("sets", "known T, LAC"), ("check", "")]
    if task != BY_EXAMPLE:
        found += [("accuracy", way) for way in (CLEAN_ALONE, *list(WAYS)[1:])]
        found += [("sets", rule) for rule in list(SETS)[2:]]
    return found


@functools.lru_cache(1)
def population_of(task, seed, epochs):
    """The population of a task and a seed, made once for all its rows."""
    return Population(task, seed, epochs)


def row(task, seed, kind, way, quick):
    """The figures of a row, and its seconds."""
    population, start = population_of(task, seed, 1 if quick else EPOCHS), time.perf_counter()
    found = figures(population, kind, way, seed, quick)
    found = {name: float(value) if isinstance(value, np.floating) else value for name, value in found.items()}
    return {**found, "seconds": round(time.perf_counter() - start, 1)}


def tables(rows):
    """The tables of the results."""
    return truth_report.tables(rows, TASKS, (*WAYS, CLEAN_ALONE), SETS)


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--quick", action="store_true", help="five redraws and an epoch, to see that it runs")
    parser.add_argument("--render", action="store_true", help="only show what the file has")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    keys = [
        {"task": task, "seed": seed, "kind": kind, "way": way}
        for seed in ([] if options.render else options.seeds)
        for task in options.tasks
        for kind, way in wanted(task)
    ]
    rows = lines.completed(options.output / "truth.jsonl", keys, lambda *key: [row(*key, options.quick)])
    publish(options.output, "truth", tables(rows), sorted({row["seed"] for row in rows}))


if __name__ == "__main__":
    main()
