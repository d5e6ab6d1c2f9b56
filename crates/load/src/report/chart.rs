//! `Chart`: an inline SVG. It sets classes and no colours: those come from the page's style sheet and its scheme.
//! All charts have the same size, in which text stays readable at half a page's width and at a phone's.

use std::fmt::{self, Display, Write};

use super::scale::Axis;

/// A chart under construction. Callers pass values; the axes map them to positions.
#[derive(Debug)]
pub(super) struct Chart {
    x: Axis,
    y: Axis,
    svg: String,
}

impl Chart {
    /// An empty chart, with its grid and an accessible description.
    pub(super) fn new(what: &str, x: Axis, y: Axis, [x_name, y_name]: [&str; 2]) -> Self {
        let mut chart = Self { x, y, svg: String::with_capacity(8192) };
        let (x, y) = (chart.x.clone(), chart.y.clone());
        chart.push(format_args!(
            "<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-label=\"{}\">",
            EscapedText(what)
        ));
        for (value, text) in &y.ticks {
            let at = chart.down(*value);
            chart.push(format_args!("<path class=\"grid\" d=\"M{LEFT} {at:.1}H{RIGHT}\"/>"));
            chart.text("tick end", LEFT - 6.0, at + 4.0, text);
        }
        for (value, text) in &x.ticks {
            let at = chart.across(*value);
            chart.push(format_args!("<path class=\"mark\" d=\"M{at:.1} {BOTTOM}v4\"/>"));
            // The outermost labels stay within the picture.
            chart.text("tick middle", at.min(RIGHT - 2.0), BOTTOM + 17.0, text);
        }
        chart.push(format_args!("<path class=\"axis\" d=\"M{LEFT} {BOTTOM}H{RIGHT}\"/>"));
        chart.text("name middle", f64::midpoint(LEFT, RIGHT), HEIGHT - 4.0, x_name);
        chart.text("name", 0.0, 9.0, y_name);
        chart
    }

    /// Values joined by straight lines.
    pub(super) fn line(&mut self, class: &str, points: &[(f64, f64)]) {
        let path = self.path(points);
        self.push(format_args!("<path class=\"line {class}\" d=\"{path}\"/>"));
    }

    /// A line, and the area below it.
    pub(super) fn area(&mut self, class: &str, points: &[(f64, f64)]) {
        let ([(first, _), ..], [.., (last, _)]) = (points, points) else { return };
        let (path, first, last) = (self.path(points), self.across(*first), self.across(*last));
        self.push(format_args!("<path class=\"area {class}\" d=\"{path}L{last:.1} {BOTTOM}L{first:.1} {BOTTOM}Z\"/>"));
        self.line(class, points);
    }

    /// A bar from the bottom, with a minimum height so that it is visible.
    pub(super) fn bar(&mut self, class: &str, from: f64, to: f64, value: f64) {
        let (from, to) = (self.across(from), self.across(to));
        let height = (BOTTOM - self.down(value)).max(1.5);
        let (top, width) = (BOTTOM - height, (to - from - 1.0).max(0.5));
        self.push(format_args!(
            "<rect class=\"bar {class}\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\"/>"
        ));
    }

    /// A point with its value above and to the left, where a rising curve leaves room.
    pub(super) fn dot(&mut self, class: &str, x: f64, y: f64, text: &str) {
        let (across, down) = (self.across(x), self.down(y));
        self.push(format_args!("<circle class=\"dot {class}\" cx=\"{across:.1}\" cy=\"{down:.1}\" r=\"3\"/>"));
        self.text("value end", across + 2.0, down - 8.0, text);
    }

    /// A tooltip for a stretch of the x-axis.
    pub(super) fn say(&mut self, from: f64, to: f64, text: &str) {
        let (from, to) = (self.across(from), self.across(to));
        let (width, height) = ((to - from).max(0.0), BOTTOM - TOP);
        self.push(format_args!(
            "<rect class=\"say\" x=\"{from:.1}\" y=\"{TOP}\" width=\"{width:.1}\" height=\"{height}\"><title>{}</title></rect>",
            EscapedText(text)
        ));
    }

    pub(super) fn finish(mut self) -> String {
        self.svg.push_str("</svg>");
        self.svg
    }

    fn path(&self, points: &[(f64, f64)]) -> String {
        let mut path = String::with_capacity(points.len() * 12);
        for (n, (x, y)) in points.iter().enumerate() {
            let command = if n == 0 { 'M' } else { 'L' };
            write!(path, "{command}{:.1} {:.1}", self.across(*x), self.down(*y)).expect("a string takes everything");
        }
        if points.len() == 1 {
            // A line of length zero: its round caps make it a point.
            path.push_str("h0");
        }
        path
    }

    fn text(&mut self, class: &str, x: f64, y: f64, text: &str) {
        self.push(format_args!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", EscapedText(text)));
    }

    fn across(&self, value: f64) -> f64 {
        LEFT + self.x.place(value) * (RIGHT - LEFT)
    }

    fn down(&self, value: f64) -> f64 {
        BOTTOM - self.y.place(value) * (BOTTOM - TOP)
    }

    fn push(&mut self, markup: fmt::Arguments<'_>) {
        self.svg.write_fmt(markup).expect("a string takes everything");
    }
}

/// Escapes text for HTML and XML, and replaces characters that XML does not allow.
#[derive(Debug, Clone, Copy)]
pub(super) struct EscapedText<'a>(pub(super) &'a str);

impl Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|char| match char {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            _ if char.is_control() => f.write_char(char::REPLACEMENT_CHARACTER),
            _ => f.write_char(char),
        })
    }
}

const WIDTH: f64 = 420.0;
const HEIGHT: f64 = 264.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = WIDTH - 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = HEIGHT - 44.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_text_is_escaped() {
        let hostile = "<script>alert('1' & \"2\")</script>\u{0}";
        let expected = "&lt;script&gt;alert(&#39;1&#39; &amp; &quot;2&quot;)&lt;/script&gt;\u{fffd}";
        assert_eq!(EscapedText(hostile).to_string(), expected);
        let axis = Axis::from_zero(1.0, |_| hostile.to_owned());
        let mut chart = Chart::new(hostile, axis.clone(), axis, [hostile; 2]);
        chart.dot("one", 0.5, 0.5, hostile);
        chart.say(0.0, 1.0, hostile);
        assert!(!chart.finish().contains("script>"));
    }

    #[test]
    fn nothing_is_drawn_outside_the_picture() {
        let axis = || Axis::from_zero(1.0, |value| value.to_string());
        let mut chart = Chart::new("a chart", axis(), axis(), ["x", "y"]);
        chart.area("one", &[(-5.0, -5.0), (0.5, 7.0), (9.0, 0.5)]);
        chart.area("one", &[]);
        let svg = chart.finish();
        assert!(svg.contains("d=\"M52.0 220.0L229.0 30.0L406.0 125.0\""), "{svg}");
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn a_tiny_bar_is_visible() {
        let axis = || Axis::from_zero(1.0, |value| value.to_string());
        let mut chart = Chart::new("a chart", axis(), axis(), ["x", "y"]);
        chart.bar("one", 0.0, 0.0001, 0.000_001);
        assert!(chart.finish().contains("width=\"0.5\" height=\"1.5\""));
    }
}
