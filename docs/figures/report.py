"""Makes the outputs of the page on label errors: what its first code prints, and pictures of the report, in Chromium.

`python -m nox -s guides -- --notebooks --keep` runs it. `report.sha256` says of which code they are.
"""

import contextlib
import hashlib
import io
import os
import pathlib
import tempfile

from playwright.sync_api import sync_playwright

HERE = pathlib.Path(__file__).parent
SIZE = {"width": 920, "height": 620}

program = (HERE.parent / "label-errors.md").read_text().split("```python\n")[1].split("```")[0]
with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
    os.chdir(folder)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(program, "label-errors.md", "exec"), {"__name__": "__main__"})
    chromium = playwright.chromium.launch(
        executable_path=os.environ.get("CHROMIUM") or None, args=["--no-sandbox", "--disable-background-networking"]
    )
    page = chromium.new_page(viewport=SIZE)
    page.goto(pathlib.Path("report/report.html").resolve().as_uri())
    page.screenshot(path=HERE / "report.png")
    page.locator("h2", has_text="Flagged labels").evaluate("heading => heading.scrollIntoView()")
    page.screenshot(path=HERE / "report_suspects.png")
    chromium.close()
(HERE / "report.txt").write_text(printed.getvalue())
(HERE / "report.sha256").write_text(hashlib.sha256(program.encode()).hexdigest() + "\n")
