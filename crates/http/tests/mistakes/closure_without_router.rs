//! A closure that makes a function instead of a router.
//@ does not make a router for each loop
//@ it has to be `Fn() -> Router<S>`, `Send`, `Sync` and `'static`

use tidegate::http::{Router, Server};

pub fn serve() {
    let make = || Some(Router::new().get("/", || "hello"));
    drop(Server::bind("127.0.0.1:0").map(|server| server.start::<()>(make)));
}
