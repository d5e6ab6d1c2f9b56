//! Routers list their routes.

use tidegate::http::{Condition, Method, Router};

fn list<S: 'static>(router: &Router<S>) -> Vec<String> {
    router.routes().iter().map(ToString::to_string).collect()
}

#[test]
fn a_router_lists_methods_paths_conditions_and_hosts() {
    assert_eq!(list(&Router::new()), [""; 0]);
    let harbour = Router::new().get("/", || "").fallback(|| "");
    let inner = Router::new().get("/", || "").fallback(|| "").put("/gauges/{id}", || "");
    let router = Router::new()
        .host("B.example", harbour)
        .host("*.a.example", Router::new().any("/sea", || ""))
        .get("/", || "")
        .post("/", || "")
        .route(&Method::from_bytes(b"PURGE").unwrap(), "/", || "")
        .any("/", || "")
        .any_if("/x", [Condition::methods([Method::GET]), !Condition::cookie("sid")], || "")
        .fallback_if([Condition::query("debug")], || "")
        .nest("/in", inner)
        .fallback(|| "");
    assert_eq!(
        list(&router),
        [
            "ANY /x if Method([\"GET\"]), !Cookie(\"sid\", Present)",
            "GET /",
            "POST /",
            "PURGE /",
            "ANY /",
            "GET /in",
            "PUT /in/gauges/{id}",
            "ANY /in/{*rest}",
            "ANY /in/",
            "ANY * if Query([100, 101, 98, 117, 103], Present)",
            "ANY *",
            "ANY *.a.example/sea",
            "GET b.example/",
            "ANY b.example*",
        ]
    );
}

#[test]
fn a_listed_route_has_its_parts() {
    let router = Router::new().delete("/tides/{harbour}", || "").any_if("/", [Condition::header("X-A")], || "");
    let routes = router.routes();
    assert_eq!((routes[0].method.as_ref(), routes[0].conditions.len()), (None, 1));
    assert_eq!(routes[0].conditions[0], Condition::header("X-A"));
    assert_eq!((routes[1].method.as_ref(), routes[1].path.as_str()), (Some(&Method::DELETE), "/tides/{harbour}"));
    assert_eq!(routes[1].host, None);
}
