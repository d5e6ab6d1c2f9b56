//! An `Rc` that the closure of a server captures.
//@ does not make a router for each loop
//@ make it inside the closure

use std::rc::Rc;

use tidegate::http::{Router, Server};

pub fn serve() {
    let name = Rc::new(String::from("sea"));
    let router = move || {
        let name = name.clone();
        Router::new().get("/", move || name.to_string())
    };
    drop(Server::bind("127.0.0.1:0").map(|server| server.start(router)));
}
