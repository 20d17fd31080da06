"""Runs the first code of the page on label errors, and keeps what it prints and a picture of the report, in Chromium.

`python -m nox -s guides -- --notebooks --keep` runs it. `report.sha256` is the checksum of the code.
"""

import contextlib
import hashlib
import io
import os
import pathlib
import re
import tempfile

from playwright.sync_api import sync_playwright

HERE = pathlib.Path(__file__).parent
SIZE = {"width": 780, "height": 600}
ROWS = 5  # of each table in the picture

PAGE = HERE.parent / "label-errors.md"

program = PAGE.read_text().split("```python\n")[1].split("```")[0]
with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
    os.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, PAGE.name, "exec"), {"__name__": "__main__"})
    chromium = playwright.chromium.launch(
        executable_path=os.environ.get("CHROMIUM") or None, args=["--no-sandbox", "--disable-background-networking"]
    )
    page = chromium.new_page(viewport=SIZE)
    page.goto(pathlib.Path("report/report.html").resolve().as_uri())
    page.evaluate(f"document.querySelectorAll('tr:nth-child(n+{ROWS + 2})').forEach((row) => row.remove())")
    page.screenshot(path=HERE / "report.png", full_page=True)
    chromium.close()
PAGE.write_text(
    re.sub(r"(?<=```text\n).*?(?=```)", lambda _: printed.getvalue(), PAGE.read_text(), count=1, flags=re.DOTALL)
)
(HERE / "report.sha256").write_text(hashlib.sha256(program.encode()).hexdigest() + "\n")
