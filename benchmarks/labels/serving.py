"""A head served without its noise: the clean labels' view of `homoscedastic(model)` beside the head and a Dense layer.

python -m benchmarks.labels.serving [--tasks NAME ...] [--seeds 3] [--output FOLDER] [--quick] [--render]
(on the backend of KERAS_BACKEND)

A full head and a Dense layer train at the middle temperature of each task, and end with the weights of the epoch that
is best by the likelihood of noisy validation labels. The head is then measured as it is, E[softmax(u / temperature)],
and as the Dense layer that `homoscedastic` makes of it, softmax(mu / temperature). No clean label chooses anything.

Results are JSON lines, one for each task, seed and way to serve, to which a later run adds what is missing.
"""

import keras
from scipy.special import log_softmax

from benchmarks.labels import recipe
from benchmarks.lib import harness, tasks
from benchmarks.lib.lines import completed, distinct, select, with_error
from benchmarks.lib.results import publish

TASKS = ("digits, 40%", "images, 20%", "digits, 40% symmetric", "groups, 100 classes, 100 each")
DENSE, NOISY, PLAIN = "Dense", "full head", "full head without its noise"
COLUMNS = ("clean accuracy", "clean NLL", "clean ECE", "noisy NLL")


def trained(task, method, seed, epochs):
    """The model of a method, with the weights of its best epoch by noisy validation labels."""
    model = recipe.make_model(task, recipe.middle_of(task)._replace(method=method), seed)
    model.compile(keras.optimizers.Adam(recipe.LEARNING_RATE), model.loss)  # one that `homoscedastic` can make again
    best = keras.callbacks.EarlyStopping("val_loss", patience=epochs, restore_best_weights=True)
    model.fit(
        *task.train,
        batch_size=recipe.BATCH,
        epochs=epochs,
        validation_data=task.validation,
        callbacks=[best],
        verbose=0,
    )
    return model


def figures(task, model):
    """`COLUMNS` of a model."""
    log_p = [
        log_softmax(model.predict(part.x, batch_size=1000, verbose=0).astype("float64"), axis=-1)
        for part in (task.test, task.validation)
    ]
    clean, noisy = (
        recipe.scores(values, part.y) for values, part in zip(log_p, (task.test, task.validation), strict=True)
    )
    return {**{f"clean {name}": clean[name] for name in ("accuracy", "NLL", "ECE")}, "noisy NLL": noisy["NLL"]}


def rows(name, seed, epochs=None):
    """A line for each way to serve."""
    from keras_het import homoscedastic

    task = tasks.TASKS[name](seed)
    dense, head = (trained(task, method, seed, epochs or task.epochs) for method in ("Dense", "full"))
    for way, model in ((DENSE, dense), (NOISY, head), (PLAIN, homoscedastic(head))):
        yield {"task": name, "seed": seed, "way": way, **figures(task, model)}
    keras.utils.clear_session()


def table(lines):
    """Mean and standard error over the seeds, and what leaving out the noise changes, seed by seed."""
    found = [["task", "served", *COLUMNS]]
    for task in distinct(lines, "task"):
        of = {way: select(lines, task=task, way=way) for way in (DENSE, NOISY, PLAIN)}
        for way, own in of.items():
            found.append(
                ["" if way != DENSE else task, way, *(with_error([line[name] for line in own]) for name in COLUMNS)]
            )
        changes = [[a[name] - b[name] for a, b in zip(of[PLAIN], of[NOISY], strict=True)] for name in COLUMNS]
        found.append(["", "change without the noise", *(signed(values) for values in changes)])
    return found


def signed(values):
    """`with_error` with a plus before what is not negative."""
    text = with_error(values)
    return text if text.startswith("-") else f"+{text}"


def main():
    parser = harness.parser_of(__doc__)
    parser.add_argument("--tasks", nargs="+", choices=list(tasks.TASKS), default=list(TASKS), metavar="NAME")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="one seed, two epochs, to see that it runs")
    parser.add_argument("--render", action="store_true", help="only show what the file has")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    seeds, epochs = (1, 2) if options.quick else (options.seeds, None)
    keys = [{"task": name, "seed": seed} for seed in range(0 if options.render else seeds) for name in options.tasks]
    lines = completed(options.output / "serving.jsonl", keys, lambda name, seed: rows(name, seed, epochs))
    lines.sort(key=lambda line: (list(tasks.TASKS).index(line["task"]), line["seed"]))
    publish(options.output, "serving", {"serving": table(lines)}, distinct(lines, "seed"))


if __name__ == "__main__":
    main()
