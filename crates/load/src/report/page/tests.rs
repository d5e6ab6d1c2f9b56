use std::time::Duration;

use super::super::samples::{busy, empty, quick, redis};
use super::*;
use crate::report::baseline::Baseline;
use crate::results::{CpuTime, Errors};

/// LoadResults with every option and every kind of error.
fn full() -> LoadResults {
    let mut figures = busy();
    figures.parameters.rate = Some(90_000.0);
    figures.parameters.pipeline = 16;
    figures.parameters.never_read = true;
    figures.parameters.idle = 10_001;
    figures.idle.held = 10_000;
    figures.errors = Errors {
        connect: 1,
        read: 2,
        write: 3,
        timeout: 4,
        status: 5,
        length: 6,
        invalid: 7,
        closed: 8_000,
        reset: 0,
        reply: 0,
    };
    figures.cpu = CpuTime { user: Duration::from_secs(9), system: Duration::from_secs(21) };
    figures
}

/// Whether every element is closed where it should be and every attribute is quoted, as XML wants it, and whether all
/// other text is escaped.
fn assert_well_formed(page: &str) {
    let body = page.strip_prefix("<!doctype html>").expect("the document type");
    let mut open = Vec::new();
    let mut rest = body;
    while let Some((text, after)) = rest.split_once('<') {
        assert!(!text.contains('>'), "a > in text: {text}");
        for reference in text.split('&').skip(1) {
            assert!(reference.split_once(';').is_some_and(|(name, _)| name.len() <= 6), "a bare &: {text}");
        }
        let (tag, after) = after.split_once('>').expect("a tag ends");
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "</{name}> closes something else");
            continue;
        }
        assert_eq!(tag.matches('"').count(), tag.matches("=\"").count() * 2, "quotes in <{tag}>");
        if !tag.ends_with('/') {
            open.push(tag.split([' ', '\n']).next().expect("a name"));
        }
    }
    assert_eq!(open, [""; 0], "left open");
}

#[test]
fn the_page_is_well_formed_for_all_sample_figures() {
    for figures in [busy(), quick(), empty(), full(), redis()] {
        let page = page(&figures);
        assert_well_formed(&page);
        assert!(!page.contains("NaN") && !page.contains("inf ") && !page.contains("{{"), "{page}");
    }
}

#[test]
fn the_page_refers_to_no_other_resource() {
    let page = page(&full());
    for other in ["<script", "src=", "href=", "url(", "@import", "http-equiv", "onload"] {
        assert!(!page.contains(other), "{other}");
    }
    assert_eq!(page.matches("<svg ").count(), 4);
}

#[test]
fn user_input_is_escaped() {
    let mut figures = full();
    figures.parameters.url = "http://h/?\"><script>alert('&')</script>{{tiles}}".to_owned();
    figures.parameters.method = "<b>".to_owned();
    let page = page(&figures);
    assert_well_formed(&page);
    assert!(!page.contains("<script") && !page.contains("<b>"));
    assert!(page.contains("http://h/?&quot;&gt;&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;{{tiles}}"));
}

#[test]
fn errors_and_notes_appear_only_if_there_are_any() {
    let calm = page(&busy());
    assert!(!calm.contains("<h2>Errors</h2>") && !calm.contains("class=\"note\"") && !calm.contains("tile bad"));
    let full = page(&full());
    assert!(full.contains("<td>8,000</td>") && full.contains("the server closed with responses outstanding"));
    assert!(full.contains("The load was the bottleneck: it used 1.00 of 1 core."));
    assert!(full.contains("corrected for coordinated omission"));
    assert!(full.contains("tile bad"));
    assert!(page(&empty()).contains("No successful response arrived."));
}

#[test]
fn statuses_and_commands_have_a_table_of_their_own() {
    let busy = page(&busy());
    assert!(busy.contains("<h2>Responses by status</h2>") && busy.contains(">200</th>"), "{busy}");
    let mut figures = redis();
    figures.redis.commands[0].name = "GET <b>".to_owned();
    let page = page(&figures);
    assert!(page.contains("<h2>Commands</h2>") && page.contains(">GET &lt;b&gt;</th>"), "{page}");
    assert!(page.contains(">WRONGTYPE Operation against") && page.contains("commands a second"), "{page}");
}

#[test]
fn a_baseline_has_a_table_with_its_verdict() {
    let mut figures = full();
    let file = std::env::temp_dir().join(format!("tidegate-load-<b>-{}", std::process::id()));
    std::fs::write(&file, super::super::json(&busy()).to_string()).expect("it is written");
    figures.baseline = Baseline::read(&file, Protocol::Http).map_err(|error| panic!("{error}")).ok();
    std::fs::remove_file(&file).expect("it is there");
    let page = page(&figures);
    assert_well_formed(&page);
    assert!(
        page.contains("-&lt;b&gt;-") && page.contains("<p>worse: there are more errors (requests a second 1.00"),
        "{page}"
    );
}

/// For manual review: `TIDEGATE_PAGES=DIRECTORY` writes the pages to that directory.
#[test]
fn pages_are_written_for_review_if_a_directory_is_set() {
    let Some(directory) = std::env::var_os("TIDEGATE_PAGES") else { return };
    for (name, figures) in
        [("busy", busy()), ("quick", quick()), ("empty", empty()), ("full", full()), ("redis", redis())]
    {
        let path = std::path::Path::new(&directory).join(name).with_extension("html");
        std::fs::write(path, page(&figures)).expect("the directory is there");
    }
}
