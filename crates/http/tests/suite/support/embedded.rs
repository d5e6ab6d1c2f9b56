//! A router without a network.

use tidegate::http::{Config, HttpHandler, Router};
use tidegate::http1::Server;
use tidegate_testkit::Embedded;

/// The bytes that a connection of a router sends after it has received each of these texts.
pub(crate) fn ask<S: 'static>(router: Router<S>, wires: &[&str]) -> Vec<String> {
    let connections = Config::new().connections(router);
    let (codec, handler): (Server, HttpHandler) = connections();
    let mut pipe = Embedded::new(codec, handler);
    let mut answer_to = |wire: &&str| {
        pipe.receive(wire.as_bytes());
        String::from_utf8(pipe.take_written()).expect("text")
    };
    wires.iter().map(&mut answer_to).collect()
}
