"""The classes among the nearest neighbours of each example."""

import warnings
from typing import Any

import numpy as np

from keras_het.base.batches import check_dense
from keras_het.base.classes import check_counted_from_zero
from keras_het.base.extras import import_extra
from keras_het.base.progress import Progress
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.seeds import random_generator
from keras_het.base.validation import check_integer, check_labels, check_numbers

MOST = 20000  # examples that are compared all with all; of more, a graph is searched
BLOCK = 1 << 25  # cosines at a time: 128 MiB
LINKS = 24  # of a node of the graph
BUILT, SEARCHED = 60, 80  # candidates of a search while the graph is made, and after, of 200,000 examples
OF_CELL, ROUNDS = 40, 5  # examples for each cell by which cells are found, and rounds of it
ASKED = 200  # examples by which the recall is measured
ROUNDING = 1e-4  # of a cosine
LEAST = 0.9  # recall, below which a warning is given


def neighbor_fractions(features: Any, labels: Any, count: int, verbose: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """The fractions of the classes among the nearest other examples, and the labels.

        p_ij = (number of the nearest `count` examples of i, without i, that have the label j) / count

    Near is a large cosine of the features. A row of zeros has the cosine 0 with all others, which are equally near: its
    shares are those of all other labels, and it is no neighbour of another. Up to 20,000 examples are compared all with
    all. Of more, most of the nearest are found by a graph (HNSW), in about N log N operations; how many, the page
    `benchmarks/results/neighbors.md` says.

    Args:
        features: `(N, D)`, more than `count` of them not zero.
        labels: integers, `(N,)`.
        count: number of neighbours, from 1 to N - 1.
        verbose: 1 for a bar where it takes more than ten seconds.
    Returns:
        shares `(N, K)`, float32, K the largest label and 1, and the labels `(N,)`.
    Raises:
        ValueError: for other shapes, features that are no numbers, too many neighbours, labels that begin with 1, or
            an id among them.
        ImportError: for more than 20,000 examples without faiss.
    Warns: if fewer than nine of ten of the nearest were found, by 200 examples.
    Source: Malkov and Yashunin 2016, "Efficient and robust approximate nearest neighbor search using Hierarchical
        Navigable Small World graphs", for the graph.

    Example:
        >>> neighbor_fractions([[1, 0], [2, 0.1], [0.3, 1], [0, 2], [0.1, 1]], [0, 0, 1, 1, 0], 1)[0].tolist()
        [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [1.0, 0.0], [0.0, 1.0]]
    """
    features = _unit_rows(_as_floats(features))
    labels = check_labels(labels, np.inf, len(features))
    check_counted_from_zero(labels, "labels")
    is_zero = ~features.any(axis=1)
    rows = np.flatnonzero(~is_zero)
    count = check_integer("num_neighbors", count, 1, _most(len(rows)))
    of_neighbors = labels[rows][nearest(features[rows] if is_zero.any() else features, count, verbose)]
    shares, zero = np.zeros((len(labels), int(labels.max()) + 1), "float32"), np.flatnonzero(is_zero)
    np.add.at(shares, (rows[:, None], of_neighbors), np.float32(1.0))
    shares /= np.float32(count)
    shares[zero] = np.bincount(labels)
    shares[zero, labels[zero]] -= 1.0
    shares[zero] /= len(labels) - 1
    return shares, labels


def nearest(x: np.ndarray, count: int, verbose: int = 0) -> np.ndarray:
    """Indices of the nearest other rows of each, `(N, count)`, of rows of length 1, float32; by a graph most of them.

    Args:
        x: the rows, `(N, D)`.
        count: number of neighbours.
        verbose: 1 for a bar where it takes more than ten seconds.
    """
    if len(x) <= MOST:
        return exact(x, np.arange(len(x)), count, verbose)
    found = _by_graph(x, count, verbose)
    asked = random_generator(0).permutation(len(x))[:ASKED]
    least, own = (np.einsum("nd,ncd->nc", x[asked], x[rows]) for rows in (exact(x, asked, count), found[asked]))
    recall = np.mean(own >= least.min(axis=1, keepdims=True) - ROUNDING)  # others may be as near as the nearest
    if recall < LEAST:
        warnings.warn(
            f"Of the nearest neighbours {recall:.0%} were found, by {ASKED} examples: the features are hard to search. "
            f"Take at most {MOST} examples, of which all are compared.",
            stacklevel=4,
        )
    return found


def exact(x: np.ndarray, rows: np.ndarray, count: int, verbose: int = 0) -> np.ndarray:
    """Indices of the nearest other rows of some, `(n, count)`, by the cosines with all, block by block."""
    size, found = max(1, BLOCK // len(x)), np.empty((len(rows), count), int)
    with Progress(len(rows), "example", verbose) as bar:
        for start in range(0, len(rows), size):
            own = rows[start : start + size]
            cosines = x[own] @ x.T
            cosines[np.arange(len(own)), own] = -np.inf
            found[start : start + size] = np.argpartition(cosines, -count, axis=1)[:, -count:]
            bar.add(len(own))
    return found


def _by_graph(x: np.ndarray, count: int, verbose: int) -> np.ndarray:
    """The same for all rows by faiss; the graph is made by one thread, with which it is the same each time.

    Its cosines are of rows in bfloat16, which takes half of the memory, and a third less time. Rows go in and are
    searched cell by cell: what is near then lies near in memory, which halves the time of a million.
    """
    faiss = import_extra("faiss", f"The check by neighbours of more than {MOST} examples")
    kind, found = faiss.ScalarQuantizer.QT_bf16, np.empty((len(x), count), int)
    index = faiss.IndexHNSWSQ(x.shape[1], kind, LINKS, faiss.METRIC_INNER_PRODUCT)
    searched = max(round(SEARCHED * (len(x) / 200_000) ** (1 / 3)), 2 * count)
    index.hnsw.efConstruction, index.hnsw.efSearch = BUILT, searched
    order = _by_cell(x, faiss)
    blocks = [order[start : start + MOST] for start in range(0, len(x), MOST)]
    threads = faiss.omp_get_max_threads()
    with Progress(2 * len(x), "example", verbose) as bar:
        faiss.omp_set_num_threads(1)
        try:
            for own in blocks:
                index.add(x[own])
                bar.add(len(own))
        finally:
            faiss.omp_set_num_threads(threads)
        for own in blocks:
            places = index.search(x[own], count + 1)[1]
            found[own] = _others(np.where(places < 0, -1, order[places]), own, x)
            bar.add(len(own))
    return found


def _by_cell(x: np.ndarray, faiss: Any) -> np.ndarray:
    """The rows in an order in which those of a cell of k-means follow each other; there are about sqrt(N) cells."""
    cells = round(len(x) ** 0.5)
    some = random_generator(0).permutation(len(x))[: OF_CELL * cells]
    means = faiss.Kmeans(x.shape[1], cells, niter=ROUNDS, seed=0, spherical=True)
    means.train(x[np.sort(some)])
    size = max(1, BLOCK // cells)
    found = [(x[start : start + size] @ means.centroids.T).argmax(axis=1) for start in range(0, len(x), size)]
    return np.argsort(np.concatenate(found), kind="stable")


def _others(found: np.ndarray, own: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Neighbours without the row itself, of which one more was asked for; those of a row that has too few are exact."""
    order = np.argsort(found == own[:, None], axis=1, kind="stable")  # the row itself, if it is there, comes last
    others = np.take_along_axis(found, order, axis=1)[:, :-1]
    few = np.flatnonzero(np.any(others < 0, axis=1))
    if len(few):
        others[few] = exact(x, own[few], others.shape[1])
    return others


def _most(others: int) -> int:
    """The most neighbours that an example can have, of so many that are not zero."""
    refuse_if(others < 2, "features", "have two rows that are not all 0", others)
    return others - 1


def _as_floats(features: Any) -> np.ndarray:
    """Features as NumPy; float32 stays."""
    given = check_dense("features", features)
    return given if isinstance(given, np.ndarray) and given.dtype == "float32" else check_numbers("features", given)


def _unit_rows(features: np.ndarray) -> np.ndarray:
    """Features of length 1, or 0, `(N, D)`, float32: their distances are in the order of their cosines."""
    refuse_if(features.ndim != 2 or len(features) < 2, "features", "have shape (N, D), N at least 2", shape=features)
    lengths = np.sqrt(np.einsum("nd,nd->n", features, features, dtype="float64"))
    wrong = np.flatnonzero(~np.isfinite(lengths))
    if len(wrong):
        raise refusal("features", "be finite numbers", f"row {wrong[0]} of length {lengths[wrong[0]]:.4g}")
    return np.divide(features, np.where(lengths > 0, lengths, 1.0)[:, None], dtype="float32", casting="same_kind")
