"""Files in which people verify labels, a table for a spreadsheet and tasks for Label Studio, and what they say."""

import csv
import dataclasses
import io
import json
import numbers
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from xml.sax.saxutils import quoteattr

import numpy as np

from keras_het.analysis.corrections import (
    OF_EXAMPLE,
    class_of_cell,
    classes_of_cells,
    name_of_cell,
    read_text,
    safe_cell,
    table_lines,
)
from keras_het.base.classes import is_missing
from keras_het.base.refusal import refusal, refuse_if
from keras_het.base.validation import check_class_names

READ, NEEDED = ("index", "verified", "inclusion"), ("index", "verified")  # columns
LONGEST_NUMBER = 40  # letters
LONGEST = 32_000  # letters of a text: a cell of a spreadsheet holds 32,767
KINDS = {"texts": "text", "images": "image"}  # arguments, and what the examples of a file are called
WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")
FRACTION = re.compile(r"[0-9]*[.,]?[0-9]+(?:[eE]-?[0-9]{1,3})?")
RULE = "be a table in UTF-8 with the columns index and verified, or what Label Studio exports as JSON"
EXPORTED = "have tasks with `data`, whose `index` is a number or text, and `annotations`: export JSON, not JSON-MIN"


@dataclasses.dataclass(frozen=True)
class VerifiedLabels:
    """Labels that people have verified.

    Attributes:
        labels: labels, `{index of example: class}`, as `verified_labels` of `choose` and of all others.
        inclusion: probabilities with which these examples were drawn, `{index: probability}`; empty where none was.
        asked: indices of all examples of the file in its order, verified or not, as `drawn` of
            `truth.label_errors_left`.
    """

    labels: dict[Any, Any]
    inclusion: dict[Any, float]
    asked: list


def columns_of_examples(index: np.ndarray, names: Any, **given: Any) -> list[tuple[str, list]]:
    """Titles and values of what a file shows of examples.

    Args:
        index: indices of the examples, `(n,)`.
        names: index of pandas of all examples, or None.
        given: texts, images, or a frame, of all examples; None for none.
    Raises:
        ValueError: for another number of them, or another index.
    """
    found = []
    for name, values in given.items():
        if values is not None:
            _check_examples(name, values, index, names)
            found += _frame_columns(values, index) if name == "frame" else [(KINDS[name], _rows(values, index))]
    wrong = [value for title, values in found for value in values if title == "image" and not isinstance(value, str)]
    refuse_if(wrong, "images", "be addresses, texts", **({"kind": wrong[0]} if wrong else {}))
    return found


def _check_examples(name: str, values: Any, index: np.ndarray, names: Any) -> None:
    is_right = hasattr(values, "columns") if name == "frame" else hasattr(values, "__getitem__")
    rule = "be a pandas frame" if name == "frame" else "be a sequence with an entry for each example"
    refuse_if(not is_right or isinstance(values, str | Mapping), name, rule, kind=values)
    least = int(index.max(initial=-1)) + 1
    refuse_if(len(values) < least, name, f"have an entry for each example, {least} at least", len(values))
    if hasattr(values, "iloc") and hasattr(names, "equals") and not names.equals(values.index):
        raise refusal(name, "have the index of the labels, in their order", "another index")


def _rows(values: Any, index: np.ndarray) -> list:
    return values.iloc[index].tolist() if hasattr(values, "iloc") else [values[place] for place in index.tolist()]


def _frame_columns(frame: Any, index: np.ndarray) -> list[tuple[str, list]]:
    rows = frame.iloc[index]
    return [(str(name), rows.iloc[:, place].tolist()) for place, name in enumerate(frame.columns)]


def table_bytes(columns: Mapping[str, np.ndarray], examples: Sequence[tuple[str, list]], suggests: bool) -> bytes:
    """The content of a table for a spreadsheet; no name or text in it can run as a formula.

    Args:
        columns: columns by title, "score" and "inclusion" numbers.
        examples: further columns, titles and values.
        suggests: boolean, whether a person sees the suggested class and the score.
    """
    file = io.StringIO(newline="")
    writer = csv.writer(file)
    writer.writerow([*columns, "verified", *(safe_cell(f"{OF_EXAMPLE} {title}") for title, _ in examples)])
    shown = [[_cell(value) for value in values] for _, values in examples]
    for index, given, suggested, score, inclusion, *values in zip(*columns.values(), *shown, strict=True):
        shown_class, shown_score = (safe_cell(_plain(suggested)), f"{score:.6g}") if suggests else ("", "")
        names = [_index_cell(index), safe_cell(_plain(given)), shown_class, shown_score]
        writer.writerow([*names, "" if np.isnan(inclusion) else f"{inclusion:.10g}", "", *values])
    return file.getvalue().encode("utf-8-sig", "replace")  # with the mark by which spreadsheets know UTF-8


def _plain(name: Any) -> int | str:
    """A name as what a file holds: a whole number, or a text."""
    whole = isinstance(name, numbers.Integral) and not isinstance(name, bool | np.bool_)
    return int(name) if whole else str(name)


def _index_cell(name: Any) -> int | str:
    """The cell of an index; a text that is a number gets a ', as spreadsheets mark such texts."""
    cell = safe_cell(_plain(name))
    return f"'{cell}" if isinstance(cell, str) and WHOLE.fullmatch(cell) else cell


def _index_of_cell(cell: str) -> str:
    return cell[1:] if cell.startswith("'") and WHOLE.fullmatch(cell[1:]) else name_of_cell(cell)


def _cell(value: Any) -> Any:
    if is_missing(value):
        return ""
    return value if isinstance(value, numbers.Number) else safe_cell(str(value)[:LONGEST])


def tasks_bytes(columns: Mapping[str, np.ndarray], examples: Sequence[tuple[str, list]], suggests: bool) -> bytes:
    """The content of a file of tasks for Label Studio, each with the suggested class as a prediction, if it `suggests`.

    Source: labelstud.io/guide/predictions, "Import pre-annotated data into Label Studio".
    """
    tasks: list[dict] = []
    for index, given, suggested, score, inclusion, *values in zip(
        *columns.values(), *(values for _, values in examples), strict=True
    ):
        shown = {
            title: "" if is_missing(value) else str(value) for (title, _), value in zip(examples, values, strict=True)
        }
        drawn = {} if np.isnan(inclusion) else {"inclusion": float(inclusion)}
        choice = {"from_name": "verified", "to_name": examples[0][0], "type": "choices"}
        result = {"id": f"suggested-{len(tasks)}", **choice, "value": {"choices": [str(suggested)]}}
        data = {"index": _plain(index), "given": str(given), **drawn, **shown}
        predictions = [{"model_version": "keras_het", "score": float(score), "result": [result]}] if suggests else []
        tasks.append({"data": data, "predictions": predictions})
    return json.dumps(tasks, indent=1, allow_nan=False).encode()


def choices_of(titles: Sequence[str], class_names: Any) -> str:
    """The labelling configuration of Label Studio that belongs to the tasks.

    Args:
        titles: titles of what is shown of an example, "text", "image" or both.
        class_names: K names.

    Example:
        >>> print(choices_of(["text"], ["cat", "dog"]))
        <View>
          <Text name="text" value="$text"/>
          <Choices name="verified" toName="text" choice="single">
            <Choice value="cat"/>
            <Choice value="dog"/>
          </Choices>
        </View>
    """
    shown = [f'  <{title.title()} name="{title}" value="${title}"/>' for title in titles]
    choices = [f"    <Choice value={quoteattr(str(name))}/>" for name in class_names]
    opened = f'  <Choices name="verified" toName="{titles[0]}" choice="single">'
    return "\n".join(["<View>", *shown, opened, *choices, "  </Choices>", "</View>"])


class Line(NamedTuple):
    """What a line or task says: where it is, the example, the class and the probability of inclusion, "" for none."""

    place: str
    example: int | str
    verified: str
    inclusion: str


def read_verified_labels(path: str | os.PathLike, class_names: Sequence | Mapping | None = None) -> VerifiedLabels:
    """The labels that people have verified, in the table of `NextLabels.to_csv` or in what Label Studio exports.

    Of a table, the column `verified` counts; a line where it is empty is not verified. A spreadsheet may sort the
    lines, leave some out, or write ; or tabs for commas. Of Label Studio it is the JSON export: the choice of each
    task, without annotations that were cancelled; where several disagree, that which is marked as ground truth.

    Indices are numbers where all are, or else texts. For `verified_labels` of a call on a pandas frame they are the
    names of its index.

    Args:
        path: path of the file.
        class_names: names of the K classes, a sequence or a dict {class: name}, to refuse others: give them, for a typo
            is no class. None takes any names; they are integers if all are whole numbers.
    Returns:
        `VerifiedLabels`.
    Raises:
        ValueError: for another file, an index twice, a class without a name, annotations that disagree, or a
            probability that is none: the error names the line or the task.

    Example:
        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "check.csv"
        >>> _ = path.write_text("index,given,verified\\n7,cat,dog\\n3,cat,\\n12,dog,dog\\n")
        >>> back = read_verified_labels(path, ["cat", "dog"])
        >>> back.labels, back.asked
        ({7: 'dog', 12: 'dog'}, [7, 3, 12])
    """
    text = read_text(path, RULE)
    lines = _tasks(text, path) if text.lstrip()[:1] in ("[", "{") else _table(text, path)
    names, places = None, {}
    if class_names is not None:
        class_names = class_names if hasattr(class_names, "__len__") else list(class_names)
        places = classes_of_cells(names := check_class_names(class_names, len(class_names)))
    labels: dict[Any, Any] = {}
    inclusion: dict[Any, float] = {}
    asked: dict[Any, None] = {}
    for line in lines:
        try:
            refuse_if(line.example in asked, "path", "have each index once", f"{str(line.example)[:40]!r} again")
            asked[line.example] = None
            if not line.verified:
                continue
            labels[line.example] = (
                name_of_cell(line.verified) if names is None else names[class_of_cell(line.verified, places, READ[1])]
            )
            if line.inclusion:
                inclusion[line.example] = _probability(line.inclusion)
        except ValueError as error:
            raise ValueError(f"{error} in {line.place} of {path}") from error
    if names is None and all(WHOLE.fullmatch(name) for name in labels.values()):
        labels = {example: int(name) for example, name in labels.items()}
    return VerifiedLabels(labels, inclusion, list(asked))


def _table(text: str, path: Any) -> list[Line]:
    """The lines of a table that have an index."""
    lines = [(f"line {line}", *cells) for line, cells in table_lines(text, path, NEEDED, READ, RULE)[1]]
    are_whole = all(WHOLE.fullmatch(example) for _, example, _, _ in lines if example)
    found = []
    for place, example, verified, inclusion in lines:
        if verified and not example:
            raise ValueError(f"{refusal('path', 'have an index in each line', 'none')} in {place} of {path}")
        if example:
            found.append(Line(place, int(example) if are_whole else _index_of_cell(example), verified, inclusion))
    return found


def _tasks(text: str, path: Any) -> list[Line]:
    """What each task says."""
    try:
        tasks = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise refusal("path", RULE, f"{path}, which is none") from error
    refuse_if(not isinstance(tasks, list), "path", EXPORTED, kind=tasks)
    found = []
    for number, task in enumerate(tasks, 1):
        try:
            line = _task(f"task {number}", task)
        except ValueError as error:
            raise ValueError(f"{error} in task {number} of {path}") from error
        found.append(line)
    return found


def _task(place: str, task: Any) -> Line:
    """What is chosen in a task, "" for nothing."""
    data, annotations = _entry(task, "data", dict), _entry(task, "annotations", list)
    example, inclusion = data.get("index"), data.get("inclusion")
    refuse_if(type(example) not in (int, str), "path", EXPORTED, f"an index {str(example)[:40]!r}")
    there = [each for each in annotations if isinstance(each, dict) and each.get("was_cancelled") is not True]
    sure = [each for each in there if each.get("ground_truth") is True] or there
    chosen = sorted({choice for each in sure for choice in _choices(each)})
    if len(chosen) > 1:
        rule = "have one class for each task, or one annotation marked as ground truth"
        raise refusal("path", rule, " and ".join(map(repr, chosen[:2])))
    return Line(place, example, (chosen or [""])[0].strip(), "" if inclusion is None else str(inclusion))


def _choices(annotation: dict) -> list[str]:
    """The choices of an annotation."""
    all_results = [each for each in _entry(annotation, "result", list) if isinstance(each, dict)]
    results = [each for each in all_results if each.get("from_name") == "verified"]
    of_kind = [_entry(each, "value", dict).get("choices") for each in results if each.get("type") == "choices"]
    are_texts = all(isinstance(each, list) and all(isinstance(name, str) for name in each) for each in of_kind)
    refuse_if(not are_texts, "path", "have texts as the `choices` of an annotation", "others")
    return [name for each in of_kind for name in each]


def _entry(given: Any, name: str, kind: type) -> Any:
    """An entry of a dict, if it is of this kind."""
    found = given.get(name) if isinstance(given, dict) else None
    refuse_if(not isinstance(found, kind), "path", EXPORTED, f"no `{name}`")
    return found


def _probability(cell: str) -> float:
    is_number = len(cell) <= LONGEST_NUMBER and FRACTION.fullmatch(cell)
    found = float(cell.replace(",", ".")) if is_number else 0.0
    refuse_if(not 0.0 < found <= 1.0, "path", "have probabilities in (0, 1] as `inclusion`", repr(cell[:40]))
    return found
