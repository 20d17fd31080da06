"""Draws the report on the home page: runs the page's code, and takes a picture of what it writes, in Chromium.

`python -m nox -s gallery -- --keep` runs it. `report.sha256` says of which code the pictures are.
"""

import hashlib
import os
import pathlib
import tempfile

from playwright.sync_api import sync_playwright

HERE = pathlib.Path(__file__).parent
SIZE = {"width": 920, "height": 620}

program = (HERE.parent / "index.md").read_text().split("```python\n")[1].split("```")[0]
with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
    os.chdir(folder)
    exec(compile(program, "index.md", "exec"), {"__name__": "__main__"})
    chromium = playwright.chromium.launch(
        executable_path=os.environ.get("CHROMIUM") or None, args=["--no-sandbox", "--disable-background-networking"]
    )
    page = chromium.new_page(viewport=SIZE)
    page.goto(pathlib.Path("report/report.html").resolve().as_uri())
    page.screenshot(path=HERE / "report.png")
    page.locator("h2", has_text="Labels that are probably wrong").evaluate("heading => heading.scrollIntoView()")
    page.screenshot(path=HERE / "report_suspects.png")
    chromium.close()
(HERE / "report.sha256").write_text(hashlib.sha256(program.encode()).hexdigest() + "\n")
