"""The house in numbers: `python -m tests.house` prints floors, rooms, arrows, sizes, loose modules, names and depth.

A room is a folder or a file directly below the package; an arrow is a pair of rooms of which one imports the other,
also inside a function. The floor of a room is one more than the highest floor that it imports from.
"""

import ast
import functools
import importlib
import pathlib
import sys
import types

PACKAGE = pathlib.Path(__file__).parent.parent / "keras_het"
README = PACKAGE.parent / "README.md"
ENGINE = ("labels", "estimator")  # what trains


def room_of(name):
    """The folder or file, directly below the package, that a dotted name is in."""
    return [*name.split("."), "__init__"][1]


def imported_rooms(source, rooms):
    """The rooms that a module's source imports."""
    for node in ast.walk(ast.parse(source)):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.split(".")[0] == PACKAGE.name:
                yield room_of(name) if room_of(name) in rooms else "__init__"


def arrows(package=PACKAGE):
    """Pairs of rooms (a, b) where a imports b, and all rooms."""
    paths = {path: path.relative_to(package).parts[0].removesuffix(".py") for path in package.rglob("*.py")}
    rooms = set(paths.values())
    pairs = {(room, other) for path, room in paths.items() for other in imported_rooms(path.read_text(), rooms)}
    return {pair for pair in pairs if pair[0] != pair[1]}, rooms


def floors(pairs, rooms):
    """The floor of every room, from 1; raises RecursionError for a circle."""

    @functools.cache
    def floor(room):
        return 1 + max((floor(other) for one, other in pairs if one == room), default=0)

    return {room: floor(room) for room in rooms}


def size_of(*rooms, package=PACKAGE):
    """Files, lines and classes of rooms; of all without any."""
    folders = [package / room for room in rooms] or [package]
    sources = [path.read_text() for folder in folders for path in folder.rglob("*.py")]
    classes = sum(isinstance(node, ast.ClassDef) for source in sources for node in ast.walk(ast.parse(source)))
    return len(sources), sum(source.count("\n") for source in sources), classes


def loose_modules(package=PACKAGE):
    """Files of code directly below the package."""
    return sorted(path.stem for path in package.glob("*.py"))


def public_modules(module):
    """A module and those that its table of contents lists, and theirs."""
    yield module
    for name in getattr(module, "__all__", ()):
        if isinstance(getattr(module, name), types.ModuleType):
            yield from public_modules(getattr(module, name))


def public_names(package="keras_het"):
    """The distinct names that the tables of contents of public modules list: modules, functions and classes."""
    return sorted({name for module in public_modules(importlib.import_module(package)) for name in module.__all__})


def stack_of(head, inputs, training):
    """The functions of the package from the call of a head to the first product of its noise, without a compiler."""
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
    """How deep the full head is, without a compiler.

    Returns: the functions of the package from the call to the first product of the noise, in training and in
        prediction, and the distributions that are made forward, and with the gradient.
    """
    import numpy as np

    from keras_het.layers import HeteroscedasticDense
    from keras_het.ops.normal import Normal
    from tests.gradients import layer_gradients

    made, init = [], Normal.__init__

    def counted(self, *tensors, **sizes):
        made.append(self)
        init(self, *tensors, **sizes)

    head, x = HeteroscedasticDense(4, num_factors=2, seed=0), np.ones((3, 5), "float32")
    head.build(x.shape)
    Normal.__init__ = counted
    try:
        training = stack_of(head, x, training=True)
        forward = len(made)
        made.clear()
        layer_gradients(head, lambda outputs: outputs[0, 0], x)
    finally:
        Normal.__init__ = init
    return training, stack_of(head, x, training=False), forward, len(made)


def main():
    pairs, rooms = arrows()
    of = floors(pairs, rooms)
    for number in sorted(set(of.values())):
        print(f"{number:2d}  {' '.join(sorted(room for room in rooms if of[room] == number))}")
    print(f"{max(of.values())} floors, {len(rooms)} rooms, {len(pairs)} arrows")
    for title, own in (("the package", ()), ("the engine", ENGINE)):
        print("{}: {} files, {:,} lines, {} classes".format(title, *size_of(*own)))
    print(f"README: {len(README.read_text().splitlines())} lines")
    print(f"{len(loose_modules())} loose modules: {' '.join(loose_modules())}")
    print(f"{len(public_names())} public names")
    training, prediction, forward, both = depth()
    for stack, of in ((training, "training"), (prediction, "prediction")):
        print(f"{len(stack)} functions from the call to the first product in {of}: {' > '.join(stack)}")
    print(f"{forward} distributions made forward, {both} with the gradient")


if __name__ == "__main__":
    sys.exit(main())
