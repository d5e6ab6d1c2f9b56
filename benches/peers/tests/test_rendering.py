"""Tables and charts of made-up results."""

import re
import unittest
import xml.etree.ElementTree as xml

from bench import charts, page, tables, units

from . import samples


class Rendering(unittest.TestCase):
    def test_the_chart_for_the_readme_is_well_formed(self):
        drawing = xml.fromstring(page.summary_svg(samples.results()))
        self.assertTrue(drawing.tag.endswith("svg"))
        self.assertIn("hyper & friends", [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")])

    def test_the_table_for_the_readme_has_each_peer_at_its_best_and_the_floor_last(self):
        rows = [line.split(" | ") for line in tables.summary(samples.results()).splitlines()[6:]]
        names = [row[0].strip("| ") for row in rows]
        self.assertEqual(names, ["**Tidegate, io_uring**", "hyper & friends", "Netty, epoll", "floor (parses nothing)"])
        self.assertIn("11.3 KiB", rows[1][-1])

    def test_each_chart_of_the_page_is_well_formed(self):
        found = re.findall(r"<svg.*?</svg>", page.html(samples.results()), re.DOTALL)
        self.assertEqual(len(found), 1 + 3 + 3 + 1)
        for drawing in found:
            xml.fromstring(drawing)

    def test_the_page_needs_nothing_from_elsewhere(self):
        text = page.html(samples.results()).replace("http://www.w3.org/2000/svg", "")
        self.assertNotRegex(text, r"https?://|@import|<script|<link|<img")

    def test_texts_from_outside_are_escaped(self):
        text = page.html(samples.results())
        self.assertIn("A &lt;fast&gt; one", text)
        self.assertNotIn("<fast>", text)

    def test_a_table_has_as_many_cells_in_every_row(self):
        lines = tables.markdown(samples.results()).splitlines()
        width = None
        for line in lines:
            cells = len(re.split(r"(?<!\\)\|", line)) if line.startswith("|") else None
            if cells and width:
                self.assertEqual(cells, width, line)
            width = cells

    def test_a_missing_figure_is_said_with_its_reason_and_never_as_a_number(self):
        results = samples.results()
        for number in (1, 2, 3):
            samples.add_failure(results, "hyper1", "plaintext-256", number, "no request was answered")
        text = tables.markdown(results)
        self.assertIn("- hyper & friends: no figure in 3 rounds: no request was answered", text)
        section = text[text.index("## Plaintext, 256 deep") : text.index("## Plaintext, 16 deep")]
        self.assertNotIn("| hyper & friends |", section)
        self.assertIn("no figure: no request was answered", page.html(results))

    def test_a_run_with_nothing_in_it_can_be_rendered(self):
        results = samples.results()
        results["runs"] = []
        xml.fromstring(page.summary_svg(results))
        self.assertIn("not measured", tables.markdown(results))
        page.html(results)

    def test_labels_and_values_stay_within_the_chart(self):
        long = "a label that is longer than there is room for " * 3
        rows = [charts.Bar(long, "other", (5.0, 1.0), 5.5, 7.0, "6.00 of them")]
        drawing = xml.fromstring(charts.bars("title", rows, 500, str).svg())
        for text in drawing.iter("{http://www.w3.org/2000/svg}text"):
            width = charts.text_width("".join(text.itertext()) if text.find("*") is None else text.find("*").tail)
            start = float(text.get("x")) - (width if "end" in text.get("class") else 0)
            self.assertGreaterEqual(start, -1)
            if "end" not in text.get("class") and "tick" not in text.get("class"):
                self.assertLessEqual(start + width, 500)


class Units(unittest.TestCase):
    def test_numbers_have_the_digits_that_mean_something(self):
        for said, number, expected in [
            (units.cpu, 0.0795, "0.0795"),
            (units.cpu, 0.1804, "0.180"),
            (units.cpu, 12.345, "12.3"),
            (units.cpu, 0, "0"),
            (units.size, 254, "254 B"),
            (units.size, 6103, "6,103 B"),
            (units.size, 17_408, "17.0 KiB"),
            (units.size, 4_300_000, "4.10 MiB"),
            (units.time, 20.5, "20.5 µs"),
            (units.time, 301_770, "302 ms"),
            (units.time, 1.26e6, "1.26 s"),
            (units.rate, 950, "950/s"),
            (units.rate, 3_098_461, "3.10 M/s"),
        ]:
            self.assertEqual(said(number), expected)

    def test_aims_are_said_as_they_were_set(self):
        said = [units.aim(number) for number in (1 / 6, 1 / 4, 0.7, 1.0)]
        self.assertEqual(said, ["≤ 1/6", "≤ 1/4", "≤ 0.7", "below"])

    def test_a_ratio_is_told_from_its_aim(self):
        self.assertEqual(units.ratio_beside(1.2204, 1.22), "1.220")
        self.assertEqual(units.ratio_beside(1.31, 1.22), "1.31")

    def test_what_is_far_beyond_all_others_leaves_them_their_room(self):
        self.assertEqual(charts.scale_end([1.0, 2.0, 3.0, 5.0]), 5.0)
        self.assertAlmostEqual(charts.scale_end([1.0, 2.0, 3.0, 500.0]), 3.0 * charts.CUT_ROOM)
        self.assertEqual(charts.scale_end([]), 1.0)
        self.assertEqual(charts.scale_end([0, 0]), 1.0)

    def test_axes_have_a_few_round_numbers(self):
        self.assertEqual(charts.steps(2.1), [0, 0.5, 1.0, 1.5, 2.0])
        self.assertEqual(charts.bounds(1.6, 17.0), [1, 2, 5, 10, 20])


if __name__ == "__main__":
    unittest.main()
