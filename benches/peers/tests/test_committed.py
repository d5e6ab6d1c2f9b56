"""The run in docs/benchmarks, and the README, which shows it."""

import json
import unittest

from bench import ROOT, page, tables

COMMITTED = ROOT / "docs" / "benchmarks"


class Committed(unittest.TestCase):
    def test_tables_and_charts_are_those_of_the_figures_beside_them(self):
        results = json.loads((COMMITTED / "results.json").read_text())
        drawn = {
            "results.md": tables.markdown(results),
            "index.html": page.html(results),
            "summary.md": tables.summary(results),
            "summary.svg": page.summary_svg(results),
        }
        for name, text in drawn.items():
            same = (COMMITTED / name).read_text() == text + "\n"
            self.assertTrue(same, f"{name}: run.py --from docs/benchmarks/results.json --out docs/benchmarks")

    def test_the_readme_has_the_chart_and_links_the_tables(self):
        readme = (ROOT / "README.md").read_text()
        self.assertIn("](docs/benchmarks/summary.svg)", readme)
        self.assertIn("](docs/benchmarks/summary.md)", readme)
