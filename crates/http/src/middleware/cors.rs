//! `Cors`: which other sites may read responses from a browser (the Fetch standard, section 3.2).

use std::fmt;
use std::time::Duration;

use tidegate_http1::{Fields, Status};

use super::{Middleware, RequestInfo};
use crate::request::Request;
use crate::response::Response;

/// Lets the scripts of other sites send requests, and read their responses: cross-origin resource sharing. A browser asks
/// for permission before most such requests, with OPTIONS; this middleware answers that by itself.
///
/// It protects users, not the server: a client that is no browser sends what it likes.
///
/// ```
/// use std::time::Duration;
///
/// use tidegate::http::{Cors, CorsError, Router};
///
/// let cors = Cors::builder()
///     .origin("https://sea.example")
///     .methods(["GET", "POST", "DELETE"])
///     .request_fields(["Content-Type", "Authorization"])
///     .credentials(true)
///     .max_age(Duration::from_secs(600))
///     .build()?;
/// let router = Router::new().get("/tides", || "rising").with(cors);
/// # drop(router);
///
/// // Any site could read what belongs to the user of the browser.
/// assert_eq!(Cors::builder().any_origin().credentials(true).build().err(), Some(CorsError::CredentialsOfAny("origin")));
/// # Ok::<(), CorsError>(())
/// ```
#[derive(Debug, Clone)]
pub struct Cors {
    origins: Origins,
    has_credentials: bool,
    /// The values of fields in the answer to a preflight, without those that depend on it.
    methods: Option<Box<str>>,
    request_fields: RequestFields,
    max_age: Option<Duration>,
    exposed: Option<Box<str>>,
}

#[derive(Debug, Clone)]
enum Origins {
    Any,
    Listed(Vec<Box<str>>),
}

#[derive(Debug, Clone)]
enum RequestFields {
    /// Those that the browser asks for.
    Asked,
    Listed(Box<str>),
}

/// Makes a [`Cors`].
#[derive(Debug, Clone, Default)]
#[must_use = "it has to be built"]
pub struct CorsBuilder {
    origins: Vec<String>,
    methods: Option<Vec<String>>,
    request_fields: Vec<String>,
    asks_fields: bool,
    exposed: Vec<String>,
    credentials: bool,
    max_age: Option<Duration>,
}

/// Why a [`CorsBuilder`] makes no middleware.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CorsError {
    /// Credentials with `*` for this part: browsers refuse it, and any site would see the data of the user. List the
    /// values.
    CredentialsOfAny(&'static str),
    /// No origin is listed.
    NoOrigin,
    /// The text is no origin: a scheme, `://`, a host, and a port if it is not the usual one. It has no path, and no
    /// slash at its end.
    Origin(String),
    /// The text is no name of a method or of a field.
    Name(String),
}

impl Cors {
    /// No origin, the methods GET, HEAD and POST, no credentials.
    pub fn builder() -> CorsBuilder {
        CorsBuilder::default()
    }

    /// The value of `Access-Control-Allow-Origin` for a request of this origin.
    fn allowed<'a>(&self, origin: &'a [u8]) -> Option<&'a [u8]> {
        match &self.origins {
            Origins::Any => Some(b"*"),
            Origins::Listed(listed) => {
                listed.iter().any(|one| one.as_bytes().eq_ignore_ascii_case(origin)).then_some(origin)
            }
        }
    }

    /// The fields that each response to an allowed origin has.
    fn allow(&self, origin: &[u8], fields: &mut Fields) {
        let Some(allowed) = self.allowed(origin) else { return };
        push(fields, "Access-Control-Allow-Origin", allowed);
        if self.has_credentials {
            push(fields, "Access-Control-Allow-Credentials", b"true");
        }
    }

    /// The answer to a request for permission.
    fn preflight(&self, request: &Request, origin: &[u8]) -> Response {
        let mut fields = Fields::new();
        push(&mut fields, "Vary", b"Origin, Access-Control-Request-Method, Access-Control-Request-Headers");
        if self.allowed(origin).is_some() {
            self.allow(origin, &mut fields);
            let methods = self.methods.as_deref().unwrap_or(SAFE_METHODS);
            push(&mut fields, "Access-Control-Allow-Methods", methods.as_bytes());
            let names = match &self.request_fields {
                RequestFields::Asked => request.header("access-control-request-headers").unwrap_or_default(),
                RequestFields::Listed(names) => names.as_bytes(),
            };
            if !names.is_empty() {
                push(&mut fields, "Access-Control-Allow-Headers", names);
            }
            if let Some(age) = self.max_age {
                push(&mut fields, "Access-Control-Max-Age", age.as_secs().to_string().as_bytes());
            }
        }
        Response::with(Status::NO_CONTENT).fields(fields)
    }
}

impl Middleware for Cors {
    fn before(&self, request: &mut Request) -> Result<(), Response> {
        match request.header("origin") {
            Some(origin) if request.header("access-control-request-method").is_some() && is_options(request) => {
                Err(self.preflight(request, origin))
            }
            _ => Ok(()),
        }
    }

    fn after(&self, info: &RequestInfo, response: &mut Response) {
        let mut fields = Fields::new();
        // An upstream may have decided already.
        if response.field("access-control-allow-origin").is_none()
            && let Some(origin) = info.request().header("origin")
        {
            self.allow(origin, &mut fields);
            if let Some(exposed) = &self.exposed
                && self.allowed(origin).is_some()
            {
                push(&mut fields, "Access-Control-Expose-Headers", exposed.as_bytes());
            }
        }
        // A cache must not give the response for one origin, or for none, to another.
        if matches!(self.origins, Origins::Listed(_)) {
            push(&mut fields, "Vary", b"Origin");
        }
        for (name, value) in fields.iter() {
            // The names and values were valid before.
            let _ = response.add_header(std::str::from_utf8(name).unwrap_or_default(), value);
        }
    }
}

fn is_options(request: &Request) -> bool {
    request.head().method() == tidegate_http1::Method::Options
}

/// Adds a field. A value that cannot be sent came from the request, and is left out.
fn push(fields: &mut Fields, name: &str, value: &[u8]) {
    let _ = fields.push(name, value);
}

impl CorsBuilder {
    /// Allows a site, such as `https://sea.example` or `http://localhost:3000`. Case does not matter.
    pub fn origin(mut self, origin: impl Into<String>) -> Self {
        self.origins.push(origin.into());
        self
    }

    /// Allows these sites.
    pub fn origins<O: Into<String>>(self, origins: impl IntoIterator<Item = O>) -> Self {
        origins.into_iter().fold(self, Self::origin)
    }

    /// Allows every site: for data that belongs to no user.
    pub fn any_origin(self) -> Self {
        self.origin(ANY)
    }

    /// Allows these methods; GET, HEAD and POST unless set.
    pub fn methods<M: Into<String>>(mut self, methods: impl IntoIterator<Item = M>) -> Self {
        self.methods = Some(methods.into_iter().map(Into::into).collect());
        self
    }

    /// Allows these request fields, beside those that every script may send. `Content-Type` has to be listed for JSON.
    pub fn request_fields<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.request_fields.extend(names.into_iter().map(Into::into));
        self
    }

    /// Allows the request fields that the browser asks for, whichever they are.
    pub fn any_request_field(mut self) -> Self {
        self.asks_fields = true;
        self
    }

    /// Lets scripts read these response fields, beside those that they may always read.
    pub fn exposed_fields<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> Self {
        self.exposed.extend(names.into_iter().map(Into::into));
        self
    }

    /// Whether requests may carry cookies and other credentials. They may not, unless set.
    pub fn credentials(mut self, allowed: bool) -> Self {
        self.credentials = allowed;
        self
    }

    /// How long a browser may remember the answer to its request for permission, in whole seconds; 5 seconds unless set,
    /// as browsers have it.
    pub fn max_age(mut self, age: Duration) -> Self {
        self.max_age = Some(age);
        self
    }

    /// The middleware.
    ///
    /// # Errors
    /// [`CorsError`]: credentials with `*`, no origin, or a text that is no origin or no name.
    pub fn build(self) -> Result<Cors, CorsError> {
        let methods = self.methods.as_deref().map(names).transpose()?;
        let (listed, exposed) = (names(&self.request_fields)?, names(&self.exposed)?);
        if self.origins.is_empty() {
            return Err(CorsError::NoOrigin);
        }
        let has_any = self.origins.iter().any(|origin| origin == ANY);
        if self.credentials {
            let parts = [
                ("origin", has_any),
                ("methods", methods.as_deref().is_some_and(has_star)),
                ("request_fields", has_star(&listed)),
                ("exposed_fields", has_star(&exposed)),
            ];
            if let Some((part, _)) = parts.into_iter().find(|(_, is_any)| *is_any) {
                return Err(CorsError::CredentialsOfAny(part));
            }
        }
        let origins = if has_any {
            Origins::Any
        } else {
            if let Some(wrong) = self.origins.iter().find(|origin| !is_origin(origin)) {
                return Err(CorsError::Origin(wrong.clone()));
            }
            Origins::Listed(self.origins.into_iter().map(Into::into).collect())
        };
        let request_fields = if self.asks_fields { RequestFields::Asked } else { RequestFields::Listed(listed.into()) };
        Ok(Cors {
            origins,
            has_credentials: self.credentials,
            methods: methods.map(Into::into),
            request_fields,
            max_age: self.max_age,
            exposed: (!exposed.is_empty()).then(|| exposed.into()),
        })
    }
}

/// A list of names, as a field has it.
fn names(names: &[String]) -> Result<String, CorsError> {
    let is_name = |name: &&String| !name.is_empty() && name.bytes().all(is_token);
    match names.iter().find(|name| !is_name(name)) {
        Some(wrong) => Err(CorsError::Name(wrong.clone())),
        None => Ok(names.join(", ")),
    }
}

/// A `tchar` (RFC 9110 §5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn has_star(list: &str) -> bool {
    list.split(", ").any(|name| name == ANY)
}

/// Whether a text is the origin of a site, as browsers send it (RFC 6454 §6.2), or `null`.
fn is_origin(text: &str) -> bool {
    let Some((scheme, authority)) = text.split_once("://") else { return text == "null" };
    let is_scheme = scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    let is_host = authority.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte));
    is_scheme && is_host && !scheme.is_empty() && !authority.is_empty()
}

impl fmt::Display for CorsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::CredentialsOfAny(part) => write!(f, "credentials exclude `*` in `{part}`: list the values"),
            Self::NoOrigin => f.write_str("no origin is allowed: list some, or call `any_origin`"),
            Self::Origin(text) => write!(f, "`{text}` is no origin: write it as https://sea.example, without a path"),
            Self::Name(text) => write!(f, "`{text}` is no name of a method or a field"),
        }
    }
}

impl std::error::Error for CorsError {}

const ANY: &str = "*";
const SAFE_METHODS: &str = "GET, HEAD, POST";
