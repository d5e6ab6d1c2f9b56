//! `WithMiddleware`: a function with middleware of its own.

use std::rc::Rc;

use crate::endpoint::{Endpoint, RequestFunction};
use crate::middleware::{self, AsyncMiddleware, Middleware, Wrapper};

/// A function with middleware of its own, for one route; see [`with_middleware`].
pub struct WithMiddleware<F> {
    function: F,
    middleware: Vec<Rc<dyn Middleware>>,
    wrappers: Vec<Wrapper>,
}

/// Adds middleware to one function, inside that of its router.
///
/// ```
/// use tidegate::http::proxy::{Proxy, Upstreams};
/// use tidegate::http::{NetworkRules, ResponseCompression, Router, with_middleware};
///
/// let upstreams = Upstreams::new(["http://10.0.0.1:8080"])?;
/// let inside = NetworkRules::new().allow("10.0.0.0/8".parse()?).deny_others();
/// let proxy = with_middleware(Proxy::new(&upstreams)).with(inside).with(ResponseCompression::new());
/// let router = Router::new().any("/reports/{*path}", proxy);
/// # drop(router);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn with_middleware<F>(function: F) -> WithMiddleware<F> {
    WithMiddleware { function, middleware: Vec::new(), wrappers: Vec::new() }
}

impl<F> WithMiddleware<F> {
    /// Adds middleware, which sees requests after, and responses before, the middleware that was added earlier.
    #[must_use]
    pub fn with(mut self, middleware: impl Middleware) -> Self {
        self.middleware.push(Rc::new(middleware));
        self
    }

    /// Adds async middleware, as [`Router::wrap`](crate::Router::wrap) does for all functions of a router. It sees requests
    /// after the middleware that was added earlier, and after all middleware that [`with`](Self::with) adds. The state of the
    /// router is not among its arguments.
    ///
    /// ```
    /// use tidegate::http::{Next, Request, Router, with_middleware};
    ///
    /// let slow = async |request: Request, next: Next| {
    ///     tidegate::task::sleep(std::time::Duration::from_millis(1)).await;
    ///     next.run(request).await
    /// };
    /// let router = Router::new().get("/slow", with_middleware(|| "slow").wrap(slow)).get("/", || "quick");
    /// # drop(router);
    /// ```
    #[must_use]
    pub fn wrap<M>(mut self, middleware: impl AsyncMiddleware<(), M>) -> Self {
        self.wrappers.push(middleware.into_wrapper(Rc::new(())));
        self
    }
}

/// Marks a function with middleware of its own.
#[derive(Debug)]
pub struct InMiddleware<M>(M);

impl<S, M, F: RequestFunction<S, M>> RequestFunction<S, InMiddleware<M>> for WithMiddleware<F> {
    fn into_endpoint(self, state: Rc<S>) -> Endpoint {
        let endpoint = self.function.into_endpoint(state);
        let wrapped = self.wrappers.iter().rev().fold(endpoint, |inner, wrapper| wrapper.around(Rc::new(inner)));
        if self.middleware.is_empty() {
            return wrapped;
        }
        middleware::around(Rc::new(wrapped), self.middleware.into())
    }
}

impl<F> std::fmt::Debug for WithMiddleware<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WithMiddleware")
            .field("middleware", &(self.middleware.len() + self.wrappers.len()))
            .finish_non_exhaustive()
    }
}
