//! `Table`: the routes of a router, without the type of its state. This file adds routes to it, and prepares it for its loop;
//! `find.rs` finds the function of a request.
//!
//! Adding a route takes a time that does not depend on the number of routes, and so does finding one.

mod conditional;
mod find;
mod list;
mod path_route;
mod segments;

use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use foldhash::fast::RandomState;
use http::Method;
use tidegate_engine::activity::Activity;
use tidegate_http1::{self as http1, Fields};
use tidegate_metrics::HttpRecorder;
use tidegate_sys::Address;

pub(crate) use self::conditional::{Choice, ConditionalRoutes};
pub use self::list::RouteInfo;
use self::path_route::PathRoute;
pub(crate) use self::path_route::Unmatched;
use crate::endpoint::{Endpoint, RequestFunction};
use crate::middleware::{self, MiddlewareList, Wrapper};
use crate::normal_path;
use crate::request::AnyState;
use crate::route::{PARAMETERS_MAX, Pattern};
use crate::serving::stall_label;
use crate::slashes::Slashes;

/// The routes, without the type of the state.
#[derive(Default)]
pub(crate) struct Table {
    paths: matchit::Router<usize>,
    /// The paths without parameters, which come before those with some, with their routes.
    exact: HashMap<Box<[u8]>, usize, RandomState>,
    /// All patterns in the form in which paths are matched, with their routes.
    places: HashMap<Box<str>, usize, RandomState>,
    routes: Vec<PathRoute>,
    pub(crate) fallback: Option<Rc<Endpoint>>,
    pub(crate) middleware: MiddlewareList,
    /// Async middleware, which is put around the functions when the router is complete.
    pub(crate) wrappers: Vec<Wrapper>,
    /// Async middleware around the responses to requests that no route matches, if there is some.
    pub(crate) unrouted: Option<Rc<Endpoint>>,
    /// Makes the state of each connection.
    pub(crate) connection_state: Option<MakeState>,
    /// Whether requests go on when the client ends its side; unless set, the outer router or the listener decides.
    pub(crate) half_close: Option<bool>,
    /// Bytes of a body, for routes without a bound of their own.
    pub(crate) body_bytes_max: Option<u64>,
    /// The time for a response, for routes without a time of their own.
    pub(crate) timeout: Option<Duration>,
    /// The routes of some hosts, by name in lower case.
    pub(crate) hosts: HashMap<String, Self, RandomState>,
    /// The routes of all hosts below a domain, by the name behind `*.`.
    pub(crate) domains: HashMap<String, Self, RandomState>,
    pub(crate) slashes: Slashes,
    /// The routes that have conditions, if there are some.
    pub(crate) conditional: Option<Box<ConditionalRoutes>>,
}

impl Table {
    /// One function for all requests.
    pub(crate) fn of_function<M>(function: impl RequestFunction<(), M>) -> Self {
        Self { fallback: Some(Rc::new(function.into_endpoint(Rc::new(())))), ..Self::default() }
    }

    pub(crate) fn add(&mut self, path: &str, method: Option<&Method>, endpoint: Rc<Endpoint>) {
        let route = self.route_of(path);
        match method {
            None => {
                let before = route.any.replace(endpoint);
                assert!(before.is_none(), "the path `{path}` has two functions for any method");
            }
            Some(method) => {
                let is_taken = match known(method) {
                    http1::Method::Extension => {
                        let is_taken = route.extensions.iter().any(|(other, _)| *other == method.as_str());
                        route.extensions.push((method.as_str().to_owned(), endpoint));
                        is_taken
                    }
                    known => {
                        let is_taken = route.methods.iter().any(|(other, _)| *other == known);
                        route.methods.push((known, endpoint));
                        is_taken
                    }
                };
                assert!(!is_taken, "the path `{path}` has two functions for {method}");
            }
        }
        route.allow = route.allowed();
    }

    pub(crate) fn add_conditional(&mut self, path: &str, choice: Choice) {
        let (pattern, normal) = pattern_of(path);
        self.conditional.get_or_insert_default().add(pattern, normal, choice);
    }

    fn route_of(&mut self, path: &str) -> &mut PathRoute {
        let (pattern, normal) = pattern_of(path);
        if let Some(&at) = self.places.get(&*normal) {
            return &mut self.routes[at];
        }
        let at = self.routes.len();
        if let Err(error) = self.paths.insert(&normal, at) {
            panic!("the path `{path}` cannot be a route: {error}");
        }
        if !normal.contains(['{', '}']) {
            self.exact.insert(normal.as_bytes().into(), at);
        }
        self.places.insert(normal.as_str().into(), at);
        self.routes.push(PathRoute {
            pattern: Rc::new(pattern),
            normal: normal.into(),
            methods: Vec::new(),
            extensions: Vec::new(),
            any: None,
            unmatched: None,
            allow: Fields::new(),
        });
        &mut self.routes[at]
    }

    /// Adds the routes of another router behind a prefix. Its fallbacks are for the paths behind the prefix.
    pub(crate) fn nest(&mut self, prefix: &str, other: Self) {
        let (fallback, choices) = self.add_routes(prefix, other);
        for choice in choices {
            for path in [prefix.to_owned(), format!("{prefix}/"), format!("{prefix}/{{*rest}}")] {
                self.add_conditional(&path, choice.clone());
            }
        }
        if let Some(endpoint) = fallback {
            self.add(&format!("{prefix}/{{*rest}}"), None, endpoint.clone());
            // The rest may be empty, which `{*rest}` does not match. A route with a parameter may match these paths as
            // well, and comes after them.
            for path in [prefix.to_owned(), format!("{prefix}/")] {
                let normal = normal_path::normal_pattern(&path);
                if !self.places.contains_key(&*normal) {
                    self.add(&path, None, endpoint.clone());
                }
            }
        }
    }

    /// Adds the routes of another router at their own paths. Its fallbacks become those of this one.
    pub(crate) fn merge(&mut self, other: Self) {
        let (fallback, choices) = self.add_routes("", other);
        if !choices.is_empty() {
            self.conditional.get_or_insert_default().fallbacks.extend(choices);
        }
        if let Some(endpoint) = fallback {
            let before = self.fallback.replace(endpoint);
            assert!(before.is_none(), "both routers have a fallback");
        }
    }

    /// Adds the routes of another router behind a prefix, within its middleware. Returns its fallbacks.
    fn add_routes(&mut self, prefix: &str, other: Self) -> (Option<Rc<Endpoint>>, Vec<Choice>) {
        other.settle_half_close(None);
        let layered = |endpoint: Rc<Endpoint>| match &other.middleware[..] {
            [] => endpoint,
            _ => Rc::new(middleware::around(endpoint, other.middleware.clone())),
        };
        let behind = |text: &str| match text {
            "/" if !prefix.is_empty() => prefix.to_owned(),
            text => format!("{prefix}{text}"),
        };
        let unmatched = (!other.middleware.is_empty() || other.unrouted.is_some())
            .then(|| layered(other.unrouted.clone().unwrap_or_else(|| Rc::new(Wrapper::function_of_unrouted()))));
        let mut fallbacks = Vec::new();
        if let Some(conditional) = other.conditional {
            let layered = |choice: Choice| Choice { endpoint: layered(choice.endpoint), ..choice };
            for route in conditional.routes() {
                let choices = route.choices.iter().cloned().map(layered);
                choices.for_each(|choice| self.add_conditional(&behind(&route.pattern.text), choice));
            }
            fallbacks.extend(conditional.fallbacks.into_iter().map(layered));
        }
        for route in other.routes {
            let path = behind(&route.pattern.text);
            let is_new = !self.places.contains_key(&*pattern_of(&path).1);
            let added = self.route_of(&path);
            if is_new {
                added.unmatched = route.unmatched.map(layered).or_else(|| unmatched.clone());
            }
            for (method, endpoint) in route.methods {
                let method =
                    Method::from_bytes(method.name().unwrap_or_default().as_bytes()).expect("it is registered");
                self.add(&path, Some(&method), layered(endpoint));
            }
            for (name, endpoint) in route.extensions {
                let method = Method::from_bytes(name.as_bytes()).expect("it was a method before");
                self.add(&path, Some(&method), layered(endpoint));
            }
            if let Some(endpoint) = route.any {
                self.add(&path, None, layered(endpoint));
            }
        }
        (other.fallback.map(layered), fallbacks)
    }

    /// Puts the async middleware around the functions.
    pub(crate) fn wrap(&mut self) {
        let wrappers = std::mem::take(&mut self.wrappers);
        if wrappers.is_empty() {
            return;
        }
        let unrouted = Wrapper::function_of_unrouted();
        if let Some(bytes) = self.body_bytes_max {
            unrouted.settle_body_bytes_max(bytes);
        }
        if let Some(timeout) = self.timeout {
            unrouted.settle_timeout(timeout);
        }
        self.unrouted = Some(Rc::new(unrouted));
        let of_routes = self.routes.iter_mut().flat_map(|route| {
            let named = route.methods.iter_mut().map(|(_, endpoint)| endpoint);
            let extensions = route.extensions.iter_mut().map(|(_, endpoint)| endpoint);
            named.chain(extensions).chain(&mut route.any).chain(&mut route.unmatched)
        });
        let conditional = self.conditional.iter_mut().flat_map(|conditional| conditional.endpoints_mut());
        for endpoint in of_routes.chain(&mut self.fallback).chain(&mut self.unrouted).chain(conditional) {
            for wrapper in wrappers.iter().rev() {
                *endpoint = Rc::new(wrapper.around(endpoint.clone()));
            }
        }
    }

    /// Whether requests go on when the client ends its side, for the functions for which that is not decided yet.
    pub(crate) fn settle_half_close(&self, outer: Option<bool>) {
        let settled = self.half_close.or(outer);
        let unsettled = self.endpoints().filter(|endpoint| endpoint.half_close.get().is_none());
        unsettled.for_each(|endpoint| endpoint.half_close.set(settled));
        self.tables().for_each(|table| table.settle_half_close(settled));
    }

    /// The routes of hosts.
    fn tables(&self) -> impl Iterator<Item = &Self> {
        self.hosts.values().chain(self.domains.values())
    }

    pub(crate) fn has_hosts(&self) -> bool {
        !self.hosts.is_empty() || !self.domains.is_empty()
    }

    /// The patterns of the routes without conditions.
    pub(crate) fn patterns(&self) -> impl Iterator<Item = &str> {
        self.routes.iter().map(|route| route.pattern.text())
    }

    /// All functions but those of hosts.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &Rc<Endpoint>> {
        let of_routes = self.routes.iter().flat_map(|route| route.endpoints().chain(&route.unmatched));
        let conditional = self.conditional.iter().flat_map(|conditional| conditional.endpoints());
        of_routes.chain(&self.fallback).chain(&self.unrouted).chain(conditional)
    }

    /// Gives every function the label that names it for the watchdog of the loop.
    pub(crate) fn label(&self, activity: &Activity) {
        for route in &self.routes {
            let path = &route.pattern.text;
            for (method, endpoint) in &route.methods {
                endpoint.label.set(activity.label(&format!("{} {path}", method.name().unwrap_or_default())));
            }
            for (name, endpoint) in &route.extensions {
                endpoint.label.set(activity.label(&format!("{name} {path}")));
            }
            if let Some(endpoint) = &route.any {
                endpoint.label.set(activity.label(path));
            }
        }
        if let Some(conditional) = &self.conditional {
            for route in conditional.routes() {
                let label = activity.label(&route.pattern.text);
                route.choices.iter().for_each(|choice| choice.endpoint.label.set(label));
            }
            let fallbacks = conditional.fallbacks.iter();
            fallbacks.for_each(|choice| choice.endpoint.label.set(activity.label("the function for some requests")));
        }
        if let Some(endpoint) = &self.fallback {
            let paths =
                if self.routes.is_empty() { "the function for all paths" } else { "the function for other paths" };
            endpoint.label.set(stall_label::label_of_fallback(endpoint, activity, paths));
        }
        self.tables().for_each(|table| table.label(activity));
    }

    /// Has the requests of every function be counted.
    pub(crate) fn count(&self, recorder: &HttpRecorder) {
        for route in &self.routes {
            let metrics = recorder.route(&route.pattern.text);
            route.endpoints().for_each(|endpoint| drop(endpoint.metrics.set(metrics.clone())));
        }
        if let Some(conditional) = &self.conditional {
            for route in conditional.routes() {
                let metrics = recorder.route(&route.pattern.text);
                route.choices.iter().for_each(|choice| drop(choice.endpoint.metrics.set(metrics.clone())));
            }
            let fallbacks = conditional.fallbacks.iter();
            fallbacks.for_each(|choice| drop(choice.endpoint.metrics.set(recorder.route(OTHER_PATHS))));
        }
        if let Some(endpoint) = &self.fallback {
            let _ = endpoint.metrics.set(recorder.route(OTHER_PATHS));
        }
        self.tables().for_each(|table| table.count(recorder));
    }

    /// Whether middleware reads the parameters of TLS connections.
    #[inline]
    pub(crate) fn reads_tls(&self) -> bool {
        self.middleware.iter().any(|one| one.reads_tls())
    }

    /// Whether that of the router of any host does.
    pub(crate) fn any_reads_tls(&self) -> bool {
        self.reads_tls() || self.tables().any(Self::any_reads_tls)
    }
}

fn known(method: &Method) -> http1::Method {
    http1::Method::from_name(method.as_str())
}

/// The pattern of a path, and the form in which paths are matched.
fn pattern_of(path: &str) -> (Pattern, String) {
    assert!(path.starts_with('/'), "the path `{path}` has to begin with a slash");
    let names = names(path);
    assert!(names.len() <= PARAMETERS_MAX, "the path `{path}` has more than {PARAMETERS_MAX} parameters");
    (Pattern { text: path.into(), names }, normal_path::normal_pattern(path))
}

/// The names of the parameters in a pattern: the texts between braces, without doubled braces.
fn names(pattern: &str) -> Box<[Box<str>]> {
    let pattern = pattern.replace("{{", "").replace("}}", "");
    let parameters = pattern.split('{').skip(1).filter_map(|rest| rest.split_once('}'));
    parameters.map(|(name, _)| name.trim_start_matches('*').into()).collect()
}

/// The route of metrics for the paths that no route matches.
const OTHER_PATHS: &str = "*";

/// Makes the state of a connection, from the address of its client.
pub(crate) type MakeState = Rc<dyn Fn(&Address) -> AnyState>;

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Table")
    }
}
