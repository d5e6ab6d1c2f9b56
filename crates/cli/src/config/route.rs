//! The keys of `[[route]]` and `[[site]]`. Those of single actions are in `proxying.rs` and `files.rs`.

use tidegate::http::{self, Response, StatusCode};

use super::auth::{ForwardAuthRule, JwtRule};
use super::connect_udp::UdpProxyRule;
use super::cors::CorsRule;
use super::files::error_pages;
use super::keys::{Key, Keys, Kind, info};
use super::literal::{is_field_name, placeholders, refuse_host};
use super::mistakes::{Located, Mistakes, Place};
use super::model::{Action, BasicAuthRule, ErrorPage, FixedResponse, Owner, Redirect, Route, Wanted};
use super::path_rule::PathRule;
use super::upstream::literal;
use super::value::{Data, Value};

impl Keys for Route {
    const TITLE: &'static str = "[[route]]";
    const TEXT: &'static str = "Which requests, and what they get: exactly one of `upstream`, `folder`, `redirect`, `respond` and `connect-udp`.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new("hosts", Kind::OneOrMore(&Kind::Text), "Names of hosts, `*.example.org` for all below one; without any, for requests that name no host of another route.", |to, value, reader| {
            to.hosts = hosts(value, reader);
        })
        .known_as(&["server-name", "server_name", "domain", "domains"]),
        Key::<Self>::new("path", Kind::Text, "One path (`/health`), a prefix (`/api/*`, which has `/api` too) or a pattern (`/users/{id}`, `/files/{*rest}`); all paths, unless set.", |to, value, reader| {
            let text = reader.text(value);
            match PathRule::parse(&text) {
                Ok(rule) => to.path = Located::new(rule, value.place),
                Err(error) => reader.mistake(value.place, error),
            }
        })
        .known_as(&["location", "prefix"]),
        Key::<Self>::new("methods", Kind::OneOrMore(&Kind::Text), "Methods, such as `GET`, which has `HEAD` too; all, unless set.", |to, value, reader| {
            for method in reader.texts(value) {
                if method.value.is_empty() || !method.value.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-') {
                    reader.mistake(method.place, format!("`{}` is not a method, such as GET", method.value.escape_debug()));
                }
                to.conditions.methods.push(method.value);
            }
        }),
        Key::<Self>::new("headers", Kind::Map(&Kind::Either(&[Kind::Text, Kind::Boolean])), "Fields that the request has: a value, `true` for any, `false` for none.", |to, value, reader| {
            to.conditions.headers = wanted(value, reader);
            for (name, _) in reader.entries(value) {
                if !is_field_name(&name.text) {
                    reader.mistake(name.place, format!("`{}` is not the name of a field", name.text.escape_debug()));
                }
            }
        }),
        Key::<Self>::new("query", Kind::Map(&Kind::Either(&[Kind::Text, Kind::Boolean])), "Parameters that the query has, decoded: a value, `true` for any, `false` for none.", |to, value, reader| {
            to.conditions.query = wanted(value, reader);
        }),
        Key::<Self>::new("client", Kind::OneOrMore(&Kind::Text), "Networks of the client, such as `10.0.0.0/8`; all, unless set. Behind proxies of `trusted`, the client is the one that these name.", |to, value, reader| {
            to.conditions.client = reader.networks(value);
        }),
        Key::<Self>::new("upstream", Kind::Text, "Pass requests on to the `[[upstream]]` of this name.", |to, value, reader| {
            let name = reader.located(value);
            to.act(Action::Upstream(name), value.place, reader.mistakes);
        })
        .known_as(&["proxy-pass", "proxy_pass", "proxy", "reverse-proxy"]),
        Key::<Self>::new("folder", Kind::Path, "Serve the files of this folder.", |to, value, reader| {
            let folder = reader.path(value);
            if !folder.value.is_dir() {
                reader.mistake(value.place, format!("`{}` is not a directory", folder.value.display()));
            }
            to.act(Action::Folder(folder), value.place, reader.mistakes);
        })
        .known_as(&["root", "alias", "directory", "files"]),
        Key::<Self>::new("redirect", Kind::Table(info::<Redirect>), "Answer with a redirect.", |to, value, reader| {
            let redirect = reader.table(value);
            to.act(Action::Redirect(redirect), value.place, reader.mistakes);
        }),
        Key::<Self>::new("respond", Kind::Table(info::<FixedResponse>), "Answer with a fixed response.", |to, value, reader| {
            let response = reader.table(value);
            to.act(Action::Respond(response), value.place, reader.mistakes);
        })
        .known_as(&["return"]),
        Key::<Self>::new("connect-udp", Kind::Table(info::<UdpProxyRule>), "Pass UDP on for clients, to the targets that they name. The path has `{target_host}` and `{target_port}`; it is `/.well-known/masque/udp/{target_host}/{target_port}/`, unless set.", |to, value, reader| {
            let rule = reader.table(value);
            to.act(Action::ConnectUdp(rule), value.place, reader.mistakes);
        })
        .known_as(&["masque", "udp-proxy"]),
        Key::<Self>::new("error-pages", Kind::Map(&Kind::Path), "Files with the bodies of errors, by status or class: `{ 404 = \"404.html\", 5xx = \"sorry.html\" }`. They replace errors of the server itself, such as 502 to 504; `intercept-errors` has those of upstreams replaced too. A name that ends with `.json` is JSON, any other HTML.", |to, value, reader| {
            to.error_pages = error_pages(value, reader);
        }),
        super::files::INTERCEPT_ERRORS,
        Key::<Self>::new("basic-auth", Kind::Table(info::<BasicAuthRule>), "Ask for a name and a password.", |to, value, reader| {
            to.basic_auth = Some(reader.table(value));
        }),
        Key::<Self>::new("forward-auth", Kind::Table(info::<ForwardAuthRule>), "Have another service decide whether a request passes.", |to, value, reader| {
            to.forward_auth = Some(reader.table(value));
        })
        .known_as(&["forward_auth", "auth-request", "auth_request"]),
        Key::<Self>::new("jwt", Kind::Table(info::<JwtRule>), "Ask for a JSON Web Token. It comes before `forward-auth`.", |to, value, reader| {
            to.jwt = Some(reader.table(value));
        })
        .known_as(&["auth-jwt", "auth_jwt"]),
        super::guards::ALLOW,
        super::guards::DENY,
        super::guards::RATE,
        super::guards::RATE_BY,
        super::guards::CONCURRENCY,
        super::guards::TIMEOUT,
        super::guards::BODY_BYTES,
        super::guards::CORS,
        super::guards::SECURITY_HEADERS,
        super::guards::CACHE,
        super::guards::COMPRESS,
        super::guards::STICKY_COOKIE,
        super::proxying::STRIP_PATH,
        super::proxying::REWRITE,
        super::proxying::MIRROR,
        super::proxying::HOST,
        super::proxying::RESPONSE_TIMEOUT,
        super::proxying::REQUEST_HEADERS,
        super::proxying::RESPONSE_HEADERS,
        super::proxying::RATE_PER_ADDRESS,
        super::proxying::HASH_KEY,
        super::proxying::X_FORWARDED,
        super::proxying::FORWARDED,
        super::proxying::TRUSTED,
        super::proxying::UPGRADES,
        super::proxying::CONNECT,
        super::proxying::HALF_CLOSE,
        super::files::INDEX,
        super::files::LISTING,
        super::files::PRECOMPRESSED,
        super::files::COMPRESSION,
        super::files::SYMLINKS,
        super::files::DOT_FILES,
        super::files::CACHE_CONTROL,
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
    }

    fn leave_out(&mut self, key: &str) {
        self.is_action_left_out |= ["upstream", "folder", "redirect", "respond", "connect-udp"].contains(&key);
    }

    fn check(&mut self, mistakes: &mut Mistakes) {
        let Some(action) = &self.action else {
            if !self.is_action_left_out {
                let text = "the route has no `upstream`, `folder`, `redirect`, `respond` or `connect-udp`";
                mistakes.add(self.place, text);
            }
            return;
        };
        if let Action::Respond(response) = action
            && matches!(response.status.as_u16(), 204 | 205 | 304)
            && !response.body.is_empty()
        {
            mistakes.add(self.place, format!("a response with {} has no body", response.status.as_u16()));
        }
        if self.has_udp_proxy() {
            if self.path.value == PathRule::ALL && self.path.place == Place::FLAG {
                self.path.value = PathRule::of_udp_targets();
            } else if !self.path.value.has_parameters(&["target_host", "target_port"]) {
                mistakes.add(self.path.place, "the path of `connect-udp` has `{target_host}` and `{target_port}`");
            }
        }
        for (name, place, owner) in &self.used {
            let is_right = match owner {
                Owner::Upstream => matches!(action, Action::Upstream(_)),
                Owner::Folder => matches!(action, Action::Folder(_)),
            };
            if !is_right {
                let of = if *owner == Owner::Upstream { "upstream" } else { "folder" };
                mistakes.add(*place, format!("`{name}` is for routes with `{of}`"));
            }
        }
        self.check_cache(mistakes);
        let is_exact = self.path.value.prefix().is_none();
        if is_exact && matches!(action, Action::Folder(_)) {
            mistakes.add(self.path.place, "the path of a folder ends with `/*`, or is left out");
        }
        if is_exact && self.proxying.strip_path {
            mistakes.add(self.path.place, "`strip-path` needs a path that ends with `/*`");
        }
        if self.path.value == PathRule::Exact("/".into()) && matches!(action, Action::Upstream(_)) {
            mistakes.warn(self.path.place, "`/` is one path; `/*`, or no path, is for all");
        }
    }
}

impl Route {
    /// A stored response is given to each client: no part of it may be that of one client.
    fn check_cache(&self, mistakes: &mut Mistakes) {
        if self.guards.cache.is_none() {
            return;
        }
        if self.guards.sticky.is_some() {
            mistakes.add(
                self.place,
                "a route has `cache` or `sticky-cookie`: a stored response would have the cookie of another client",
            );
        }
        for edit in self.proxying.response_edits.iter().filter(|edit| edit.reads_client()) {
            let text = format!(
                "`{}` of `response-headers` has a part of the request, and a stored response would have that of another client",
                edit.name().escape_debug()
            );
            mistakes.add(self.place, text);
        }
    }

    fn act(&mut self, action: Action, place: Place, mistakes: &mut Mistakes) {
        if self.action.replace(action).is_some() {
            mistakes.add(place, "a route has one of `upstream`, `folder`, `redirect`, `respond` and `connect-udp`");
        }
    }
}

/// Names of hosts.
pub(super) fn hosts(value: &Value, reader: &mut super::reader::Reader<'_>) -> Vec<Located<String>> {
    let hosts = reader.texts(value);
    for host in &hosts {
        if let Some(text) = refuse_host(&host.value) {
            reader.mistake(host.place, text);
        }
    }
    hosts
}

fn wanted(value: &Value, reader: &mut super::reader::Reader<'_>) -> Vec<(String, Wanted)> {
    let entry = |(name, value): &(super::value::Name, Value)| {
        let wanted = match &value.data {
            Data::Boolean(true) => Wanted::Present,
            Data::Boolean(false) => Wanted::Absent,
            Data::Text { text, .. } => Wanted::Value(text.clone()),
            _ => return None,
        };
        Some((name.text.clone(), wanted))
    };
    reader.entries(value).iter().filter_map(entry).collect()
}

impl Keys for Redirect {
    const TITLE: &'static str = "redirect";
    const TEXT: &'static str = "A redirect, which keeps the query.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new("to", Kind::Text, "The path or URL to go to. With placeholders, such as `https://{request.host}{request.target}`, the query is the one that they give.", |to, value, reader| {
            let text = reader.text(value);
            match placeholders(&text) {
                Ok(None) => {}
                Ok(Some(template)) => match http::Redirect::new(StatusCode::PERMANENT_REDIRECT, template.clone()) {
                    Ok(_) => return to.template = Some(template),
                    Err(error) => return reader.mistake(value.place, format!("`{}`: {error}", text.escape_debug())),
                },
                Err(error) => return reader.mistake(value.place, error),
            }
            to.to = text;
            if let Err(error) = Response::new().header("Location", &to.to) {
                reader.mistake(value.place, format!("`{}`: {error}", to.to.escape_debug()));
            }
        })
        .required(),
        Key::<Self>::new(
            "status",
            Kind::Integer { min: 301, max: 308 },
            "301, 302, 303, 307 or 308.",
            |to, value, reader| {
                to.status = reader.count(value) as u16;
                if !matches!(to.status, 301 | 302 | 303 | 307 | 308) {
                    reader.mistake(
                        value.place,
                        format!("{} is not the status of a redirect: 301, 302, 303, 307, 308", to.status),
                    );
                }
            },
        )
        .default("308"),
    ];
}

impl Keys for FixedResponse {
    const TITLE: &'static str = "respond";
    const TEXT: &'static str = "A fixed response.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new("status", Kind::Integer { min: 200, max: 599 }, "The status.", |to, value, reader| {
            to.status = StatusCode::from_u16(reader.count(value) as u16).unwrap_or_default();
        })
        .default("200"),
        Key::<Self>::new("body", Kind::Secret, "The body, as a text or from a file of up to 64 KiB; empty, unless set. It is `text/plain`, unless `headers` has a `Content-Type`.", |to, value, reader| {
            to.body = reader.secret(value);
        })
        .default("\"\""),
        Key::<Self>::new("headers", Kind::Map(&Kind::Text), "Fields of the response.", |to, value, reader| {
            for (name, value) in reader.entries(value) {
                let text = literal(value, reader);
                if let Err(error) = Response::new().header(&name.text, &text) {
                    reader.mistake(value.place, format!("`{}`: {error}", name.text.escape_debug()));
                } else if ["content-length", "transfer-encoding", "connection"].contains(&&*name.text.to_ascii_lowercase()) {
                    reader.mistake(name.place, format!("the server sets `{}` itself", name.text));
                }
                to.headers.push((name.text.clone(), text));
            }
        }),
    ];
}

/// `[[site]]`: routes of some hosts.
#[derive(Debug, Default)]
pub(crate) struct Site {
    place: Place,
    hosts: Vec<Located<String>>,
    routes: Vec<Route>,
    error_pages: Vec<ErrorPage>,
    cors: Option<CorsRule>,
    basic_auth: Option<BasicAuthRule>,
    forward_auth: Option<ForwardAuthRule>,
    jwt: Option<JwtRule>,
}

impl Keys for Site {
    const TITLE: &'static str = "[[site]]";
    const TEXT: &'static str = "Routes that share hosts. Its `[[site.route]]` have the keys of a `[[route]]`.";
    const KEYS: &'static [Key<Self>] = &[
        Key::<Self>::new(
            "hosts",
            Kind::OneOrMore(&Kind::Text),
            "The hosts of its routes, as for a route.",
            |to, value, reader| to.hosts = hosts(value, reader),
        ),
        Key::<Self>::new(
            "route",
            Kind::List(&Kind::Table(info::<Route>)),
            "Its routes, which have no `hosts` of their own.",
            |to, value, reader| to.routes = reader.tables(value),
        )
        .required(),
        Key::<Self>::new(
            "error-pages",
            Kind::Map(&Kind::Path),
            "Those of its routes without any of their own.",
            |to, value, reader| to.error_pages = error_pages(value, reader),
        ),
        Key::<Self>::new(
            "cors",
            Kind::Table(info::<CorsRule>),
            "That of its routes without one of their own.",
            |to, value, reader| {
                to.cors = Some(reader.table(value));
            },
        ),
        Key::<Self>::new(
            "basic-auth",
            Kind::Table(info::<BasicAuthRule>),
            "That of its routes without one of their own.",
            |to, value, reader| {
                to.basic_auth = Some(reader.table(value));
            },
        ),
        Key::<Self>::new(
            "forward-auth",
            Kind::Table(info::<ForwardAuthRule>),
            "That of its routes without one of their own.",
            |to, value, reader| {
                to.forward_auth = Some(reader.table(value));
            },
        ),
        Key::<Self>::new(
            "jwt",
            Kind::Table(info::<JwtRule>),
            "That of its routes without one of their own.",
            |to, value, reader| {
                to.jwt = Some(reader.table(value));
            },
        ),
    ];

    fn at(&mut self, place: Place) {
        self.place = place;
    }

    fn check(&mut self, mistakes: &mut Mistakes) {
        for route in &self.routes {
            if let Some(host) = route.hosts.first() {
                mistakes.add(host.place, "a route of a site has the hosts of its site");
            }
        }
    }
}

impl Site {
    /// Its routes, with its hosts.
    pub(super) fn into_routes(self) -> impl Iterator<Item = Route> {
        let Self { hosts, routes, error_pages, cors, basic_auth, forward_auth, jwt, .. } = self;
        routes.into_iter().map(move |mut route| {
            route.hosts.clone_from(&hosts);
            if route.error_pages.is_empty() {
                route.error_pages.clone_from(&error_pages);
            }
            route.cors = route.cors.or_else(|| cors.clone());
            route.basic_auth = route.basic_auth.or_else(|| basic_auth.clone());
            route.forward_auth = route.forward_auth.or_else(|| forward_auth.clone());
            route.jwt = route.jwt.or_else(|| jwt.clone());
            route
        })
    }
}
