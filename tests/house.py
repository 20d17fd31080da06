"""The house in numbers: `python -m tests.house [CHECKOUT ...]` prints a table with a column for each checkout.

How it counts:

* lines: all lines of Python files, with comments and blank lines; pages: README.md and docs/*.md; words: the words of
  pages outside code blocks, tables and HTML.
* A room is a folder or a file directly below the package; an arrow is a pair of rooms of which one imports the other,
  also inside a function. The floor of a room is one more than the highest floor that it imports from.
* public names: the distinct names in `__all__` of keras_het and of the public modules that it lists, with the names of
  the modules.
* walks: calls of `base.graph.walk` while a plain model is converted, and while it is checked.
"""

import ast
import functools
import importlib
import json
import os
import pathlib
import re
import subprocess
import sys
import types

ROOT = pathlib.Path(__file__).parent.parent
PACKAGE = ROOT / "keras_het"


def room_of(name):
    """Returns the folder or file, directly below the package, that a dotted name is in."""
    return [*name.split("."), "__init__"][1]


def imported_rooms(source, rooms):
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] == "keras_het":
                yield room_of(name) if room_of(name) in rooms else "__init__"


def arrows(package=PACKAGE):
    """Returns pairs of rooms (a, b) where a imports b, and all rooms."""
    paths = {path: path.relative_to(package).parts[0].removesuffix(".py") for path in package.rglob("*.py")}
    rooms = set(paths.values())
    pairs = {(room, other) for path, room in paths.items() for other in imported_rooms(path.read_text(), rooms)}
    return {pair for pair in pairs if pair[0] != pair[1]}, rooms


def floors(pairs, rooms):
    """Returns the floor of every room, from 1. Raises RecursionError for a circle."""

    @functools.cache
    def floor(room):
        return 1 + max((floor(other) for one, other in pairs if one == room), default=0)

    return {room: floor(room) for room in rooms}


def size_of(folder):
    """Returns the number of files and lines of Python in a folder, 0 if it is missing."""
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    return len(texts), sum(text.count("\n") for text in texts)


def prose(text):
    """Returns the words of a page outside code blocks, tables and HTML."""
    text = re.sub(r"^```.*?^```|<!--.*?-->|<[^>]*>", "", text, flags=re.DOTALL | re.MULTILINE)
    return [word for line in text.splitlines() if not line.lstrip().startswith("|") for word in line.split()]


def sessions(root):
    files = [path for path in (root / "noxfile.py", root / "benchmarks" / "noxfile.py") if path.exists()]
    pattern = r"^@nox\.session.*\n(?:@.*\n)*def (\w+)"
    return sorted(name for path in files for name in re.findall(pattern, path.read_text(), re.MULTILINE))


def loose_modules(package=PACKAGE):
    return sorted(path.stem for path in package.glob("*.py"))


def public_modules(module):
    yield module
    for name in getattr(module, "__all__", ()):
        if isinstance(getattr(module, name), types.ModuleType):
            yield from public_modules(getattr(module, name))


def public_names(package="keras_het"):
    """Returns the distinct names that the tables of contents of public modules list: modules, functions and classes."""
    return sorted({name for module in public_modules(importlib.import_module(package)) for name in module.__all__})


def stack_of(head, inputs, training):
    """Returns the package's functions from the call of a head to the first product of its noise, uncompiled."""
    from keras_het.ops.low_rank import LowRankNormal

    stacks, products = [], {name: getattr(LowRankNormal, name) for name in ("logits_at", "logits")}

    def seen(name):
        def product(self, nodes):
            frames, frame = [name], sys._getframe(1)
            while frame is not None:  # to the end: a wrapper may have any name
                if str(PACKAGE) in frame.f_code.co_filename:
                    frames.append(frame.f_code.co_name)
                frame = frame.f_back
            stacks.append(frames[::-1])
            return products[name](self, nodes)

        return product

    try:
        for name in products:
            setattr(LowRankNormal, name, seen(name))
        head(inputs, training=training)
    finally:
        for name, product in products.items():
            setattr(LowRankNormal, name, product)
    return stacks[0]


def depth():
    """Returns the depth of the uncompiled full head in function calls.

    Returns: the functions of the package from the call to the first product of the noise, in training and in
        prediction, and the distributions that are made forward, and with the gradient.
    """
    import numpy as np

    from keras_het.layers import HeteroscedasticDense
    from keras_het.ops.normal import Normal
    from tests.gradients import layer_gradients

    made, init = [], Normal.__init__

    def count_call(self, *tensors, **sizes):
        made.append(self)
        init(self, *tensors, **sizes)

    head, x = HeteroscedasticDense(4, num_factors=2, seed=0), np.ones((3, 5), "float32")
    head.build(x.shape)
    Normal.__init__ = count_call
    try:
        training = stack_of(head, x, training=True)
        forward = len(made)
        made.clear()
        layer_gradients(head, lambda outputs: outputs[0, 0], x)
    finally:
        Normal.__init__ = init
    return training, stack_of(head, x, training=False), forward, len(made)


def count_walks(function):
    """Returns how often a function walks the graph of a model."""
    from keras_het.base import graph

    walk, walks = graph.walk, []
    modules = [module for name, module in sys.modules.items() if name.startswith("keras_het.")]
    modules = [module for module in modules if getattr(module, "walk", None) is walk]

    def count_call(*arguments, **named):
        walks.append(arguments)
        return walk(*arguments, **named)

    try:
        for module in modules:
            module.walk = count_call
        function()
    finally:
        for module in modules:
            module.walk = walk
    return len(walks)


def walks():
    import keras

    import keras_het

    def plain():
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(8), keras.layers.Dense(3, "softmax")])
        model.compile("sgd", "sparse_categorical_crossentropy")
        return model

    model = plain()
    return {
        "heteroscedastic": count_walks(lambda: keras_het.heteroscedastic(model)),
        "check": count_walks(lambda: keras_het.check(model)),
    }


def figures(root):
    package, rows = root / "keras_het", {}
    for folder in ("keras_het", "tests", "benchmarks", "guides", "docs/hooks", "docs/tests"):
        rows[f"{folder}: files"], rows[f"{folder}: lines"] = size_of(root / folder)
    pages = [root / "README.md", *sorted((root / "docs").glob("*.md"))]
    rows["pages"], rows["words"] = len(pages), sum(len(prose(page.read_text())) for page in pages)
    pairs, rooms = arrows(package)
    rows |= {"rooms": len(rooms), "floors": max(floors(pairs, rooms).values()), "arrows": len(pairs)}
    rows["sessions"] = len(sessions(root))
    program = [sys.executable, "-P", __file__, "--imported"]  # of the other checkout, not of this one
    environment = {**os.environ, "PYTHONPATH": str(root)}
    run = subprocess.run(program, cwd=root, env=environment, capture_output=True, text=True, check=True)
    return rows | json.loads(run.stdout.splitlines()[-1])


def main(arguments):
    """Prints the table, and for one checkout also its floors and sessions."""
    if arguments == ["--imported"]:
        figures_of_walks = {f"walks of {name}": count for name, count in walks().items()}
        print(json.dumps({"public names": len(public_names()), **figures_of_walks}))
        return
    roots = [pathlib.Path(name).resolve() for name in arguments] or [ROOT]
    columns = [figures(root) for root in roots]
    for name in columns[0]:
        print(f"{name:28}" + "".join(f"{column[name]:>12,}" for column in columns))
    if len(roots) == 1:
        pairs, rooms = arrows(roots[0] / "keras_het")
        floor_of = floors(pairs, rooms)
        for number in sorted(set(floor_of.values())):
            print(f"floor {number:2d}  {' '.join(sorted(room for room in rooms if floor_of[room] == number))}")
        print("sessions ", *sessions(roots[0]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
