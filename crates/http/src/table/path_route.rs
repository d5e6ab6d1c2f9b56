//! `PathRoute`: the functions of one path, by method.

use std::rc::Rc;

use tidegate_http1::{self as http1, Fields, RequestHead, Status};

use crate::endpoint::Endpoint;
use crate::response::Response;
use crate::route::{Pattern, Route, Values};

/// The result of routing: a function and its route, or the response to a request that has none.
pub(crate) type Found<'a> = Result<(&'a Rc<Endpoint>, Option<Route>), Unmatched<'a>>;

/// The router's response to a request without a function.
pub(crate) struct Unmatched<'a> {
    pub(crate) response: Box<Response>,
    /// The middleware of the nested router that has the path, around the response.
    pub(crate) endpoint: Option<&'a Rc<Endpoint>>,
}

impl From<Response> for Unmatched<'_> {
    fn from(response: Response) -> Self {
        Self { response: Box::new(response), endpoint: None }
    }
}

/// The functions of one path.
pub(super) struct PathRoute {
    pub(super) pattern: Rc<Pattern>,
    /// The pattern in the form in which paths are matched.
    pub(super) normal: Box<str>,
    pub(super) methods: Vec<(http1::Method, Rc<Endpoint>)>,
    /// Methods that are not registered, by name.
    pub(super) extensions: Vec<(String, Rc<Endpoint>)>,
    pub(super) any: Option<Rc<Endpoint>>,
    /// Middleware of a nested router, around the responses to methods without a function.
    pub(super) unmatched: Option<Rc<Endpoint>>,
    /// The response to a method that has no function.
    pub(super) allow: Fields,
}

impl PathRoute {
    /// The function for a request to this path.
    #[inline]
    pub(super) fn found(&self, head: &RequestHead, values: Values) -> Found<'_> {
        match self.function(head) {
            Some(endpoint) => Ok((endpoint, Some(Route { pattern: self.pattern.clone(), values }))),
            None => Err(self.without_function(head)),
        }
    }

    #[cold]
    fn without_function(&self, head: &RequestHead) -> Unmatched<'_> {
        let response = match head.method() {
            http1::Method::Options => Response::with(Status::NO_CONTENT).fields(self.allow.clone()),
            http1::Method::Extension => Response::of_error(Status::NOT_IMPLEMENTED),
            _ => Response::of_error(Status::METHOD_NOT_ALLOWED).fields(self.allow.clone()),
        };
        Unmatched { response: Box::new(response), endpoint: self.unmatched.as_ref() }
    }

    #[inline]
    fn function(&self, head: &RequestHead) -> Option<&Rc<Endpoint>> {
        let of = |method| self.methods.iter().find(|(other, _)| *other == method).map(|(_, endpoint)| endpoint);
        let found = match head.method() {
            http1::Method::Extension => {
                let name = head.method_text();
                self.extensions.iter().find(|(other, _)| other == name).map(|(_, endpoint)| endpoint)
            }
            // WebSocket over HTTP/2, which is a GET over HTTP/1.1 (RFC 8441 §5).
            http1::Method::Connect if head.protocol().is_some() => of(http1::Method::Get),
            http1::Method::Head => of(http1::Method::Head).or_else(|| of(http1::Method::Get)),
            method => of(method),
        };
        found.or(self.any.as_ref())
    }

    /// All functions of the path.
    pub(super) fn endpoints(&self) -> impl Iterator<Item = &Rc<Endpoint>> {
        let named = self.methods.iter().map(|(_, endpoint)| endpoint);
        named.chain(self.extensions.iter().map(|(_, endpoint)| endpoint)).chain(&self.any)
    }

    pub(super) fn allowed(&self) -> Fields {
        let mut names: Vec<&str> = self.methods.iter().filter_map(|(method, _)| method.name()).collect();
        names.extend(self.extensions.iter().map(|(name, _)| name.as_str()));
        if names.contains(&"GET") && !names.contains(&"HEAD") {
            names.push("HEAD");
        }
        if !names.contains(&"OPTIONS") {
            names.push("OPTIONS");
        }
        let mut fields = Fields::new();
        fields.push("Allow", names.join(", ")).expect("methods are tokens");
        fields
    }
}
