//! The log names the upstream whose response cannot be passed on.

use std::cell::RefCell;
use std::fmt::{Debug, Write};
use std::rc::Rc;
use std::time::Duration;

use tidegate::framing::Raw;
use tidegate::http::proxy::{Proxy, Upstreams};
use tidegate::http::{Config, Router};
use tidegate::{Client, Context, Handler, Limits, Outcome, Slice};
use tidegate_testkit::network::Network;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

thread_local! {
    /// The lines of the log of this thread.
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Collect;

impl Subscriber for Collect {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tidegate")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(String::new());
        event.record(&mut line);
        LINES.with_borrow_mut(|lines| lines.push(line.0));
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let _ = write!(self.0, " {field}={value:?}");
    }
}

/// Answers whatever it receives with these bytes.
struct Answer(&'static str);

impl Handler<Raw> for Answer {
    type Post = ();

    fn message(&mut self, _: Slice, cx: &mut Context<'_, Raw>) -> Outcome<Raw> {
        cx.send(self.0.as_bytes().to_vec().into()).into()
    }
}

/// The log when an upstream sends this response.
fn log_of(response: &'static str) -> Vec<String> {
    let network = Network::new(1);
    let upstream = network.host("10.0.1.1").node();
    upstream.listen(80, Limits::default(), move |_| (Raw, Answer(response))).expect("the port is free");
    let upstreams = Upstreams::builder().server("http://10.0.1.1".parse().expect("a URL")).build().expect("all is set");
    let gateway = network.host("10.0.0.1").node();
    let connections = Config::new().connections(Router::new().fallback(Proxy::new(&upstreams)));
    let address = gateway.listen(80, Limits::default(), move |_| connections()).expect("the port is free");
    let received = Rc::new(RefCell::new(Vec::new()));
    let of_client = received.clone();
    let client = network.host("10.0.0.2").node();
    let asking = client.spawn(async move {
        let mut channel = Client::at(address).connect(Raw).await.expect("it connects");
        channel.send(b"GET / HTTP/1.1\r\nHost: sea\r\n\r\n".to_vec().into()).expect("room");
        while let Ok(Some(bytes)) = channel.recv().await {
            of_client.borrow_mut().extend_from_slice(&bytes);
        }
    });
    tracing::subscriber::with_default(Collect, || {
        network.run_task(Duration::from_secs(600), asking);
        // The connection is logged when it is gone.
        network.run_for(Duration::from_secs(60));
    });
    let received = String::from_utf8(received.take()).expect("text");
    assert!(received.starts_with("HTTP/1.1 200 ") && !received.ends_with("0\r\n\r\n"), "{received}");
    LINES.take()
}

#[test]
fn the_reason_of_a_response_that_ends_early_names_the_upstream() {
    for (rest, reason) in [
        ("0\r\nContent-Length: 5\r\n\r\n", "a trailer field has to come before the body"),
        ("0\r\nno field\r\n\r\n", "a trailer field is malformed"),
        ("no chunk\r\n", "chunk"),
    ] {
        let response = format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nebb\r\n{rest}");
        let lines = log_of(response.leak());
        let is_of_client = |line: &&String| line.contains("connection closed") && line.contains("the handler failed");
        let of_client = lines.iter().find(is_of_client).unwrap_or_else(|| panic!("{lines:?}"));
        assert!(of_client.contains("upstream http://10.0.1.1") && of_client.contains(reason), "{of_client}");
    }
}
