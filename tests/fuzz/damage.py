"""Ways in which a file may be damaged or hostile: its bytes, and the members of its archive."""

import io
import os
import warnings
import zipfile
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

BOMB = 64 << 20  # bytes that a small member unpacks to


class Evil:
    def __reduce__(self):
        return os.system, ("true",)


def npy(array):
    file = io.BytesIO()
    np.save(file, array, allow_pickle=True)
    return file.getvalue()


def with_header(text):
    header = text.encode("latin1", "replace")
    return b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header + bytes(64)


CONTENTS = {  # of a member
    "pickle": lambda: npy(np.array([Evil()], object)),
    "objects in a record": lambda: npy(np.array([(1, Evil())], [("a", "i4"), ("b", "O")])),
    "huge": lambda: with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (1099511627776,), }\n"),
    "negative": lambda: with_header("{'descr': '<f8', 'fortran_order': False, 'shape': (-8,), }\n"),
    "deep": lambda: with_header("(" * 5000 + ")" * 5000),
    "code": lambda: with_header("__import__('os').system('true')"),
    "long": lambda: with_header("{" + " " * 200_000 + "}"),
    "texts": lambda: npy(np.array(["a", "b" * 1000])),
    "nan": lambda: npy(np.full((6, 3), np.nan, "float32")),
    "complex": lambda: npy(np.ones((6, 3), complex)),
    "scalar": lambda: npy(np.float32(1)),
    "times": lambda: npy(np.array(["2020-01-01"], "datetime64[D]")),
    "many axes": lambda: npy(np.ones((1,) * 32, "float32")),
    "nothing": lambda: b"",
    "zip": lambda: zipped([("a.npy", npy(np.ones(3)))]),
    "bomb": lambda: npy(np.zeros(BOMB // 8)),
}
NAMES = ["../../evil.npy", "/evil", "x.npy", "y.npy", "settings.json", "a" * 300, "", "\x00"]


def zipped(members, method=zipfile.ZIP_DEFLATED):
    file = io.BytesIO()
    with warnings.catch_warnings(action="ignore"), zipfile.ZipFile(file, "w", method) as archive:
        for name, content in members:
            info = zipfile.ZipInfo(name)
            info.compress_type = method
            archive.writestr(info, content)
    return file.getvalue()


class Change(NamedTuple):
    """One damage: a name of `DAMAGES`, a share of the file or of its members in [0, 1), and what else it needs."""

    kind: str
    place: float
    value: Any


def splice(content, place, value):
    """Puts other bytes in the place of some: of none to insert them, and none of the rest to cut it."""
    start, (length, others) = int(place * len(content)), value
    return content[:start] + others + content[start + length :]


SPLICES = st.one_of(
    st.just((1 << 40, b"")),
    st.binary(min_size=1, max_size=1).map(lambda byte: (1, byte)),
    st.integers(1, 500).map(lambda length: (length, bytes(length))),
    st.binary(min_size=1, max_size=20).map(lambda others: (0, others)),
)


def member(content, place, value):
    """Drops a member of an archive, or puts another name or content in its place or beside it; skips other files."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = [(info.filename, archive.read(info)) for info in archive.infolist()]
    except Exception:  # an earlier damage
        return content
    if not members:
        return content
    index, (is_replaced, *changed) = int(place * len(members)), value
    if changed:
        (name, inside), old = changed, members[index]
        changed = [(old[0] if name is None else name, old[1] if inside is None else CONTENTS[inside]())]
    members[index : index + is_replaced] = changed
    return zipped(members, zipfile.ZIP_DEFLATED if int(100 * place) % 2 else zipfile.ZIP_STORED)


def line(content, place, value):
    lines = content.split(b"\r\n")
    lines.insert(int(place * len(lines)), value.encode("utf-8", "surrogatepass"))
    return b"\r\n".join(lines)


LINES = [
    "=1+1,cat,dog,1,0,,dog", "-1,cat,,,,,dog", "1,cat,,,,,dog", "0,cat,dog,0.1,1,,mouse", "9" * 4000 + ",cat,,,,,dog",
    "\u0661,cat,,,,,dog", '0,"cat', "0,cat,dog,0.1,1,," + "x" * 200_000,
    "index,label,suggested,score,is_issue,kind,corrected", "index,index,label,corrected", ",,,,,,", "\x00,\x00",
    "0,cat,dog,nan,1,kind,dog,more,and more", "0;cat;dog", "\ud800,cat,,,,,dog",
]  # fmt: skip
MEMBERS = st.just((True,)) | st.tuples(
    st.booleans(), st.none() | st.sampled_from(NAMES), st.none() | st.sampled_from(list(CONTENTS))
)
DAMAGES = {
    "bytes": (splice, SPLICES),
    "line": (line, st.sampled_from(LINES) | st.text(max_size=30)),
    "member": (member, MEMBERS),
}


@st.composite
def changes(draw, kinds):
    kind = draw(st.sampled_from(kinds))
    return Change(kind, draw(st.floats(0, 1, exclude_max=True)), draw(DAMAGES[kind][1]))


def damaged(content, found):
    for change in found:
        content = DAMAGES[change.kind][0](content, change.place, change.value)
    return content
