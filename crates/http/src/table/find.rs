//! From a request to its function: the routes of its host, then those of its path, then its method.

use tidegate_http1::{RequestHead, Status};
use tidegate_sys::Address;

use super::Table;
use super::conditional::ConditionalRoutes;
use super::path_route::Found;
use crate::normal_path::{self, NormalPath};
use crate::response::Response;
use crate::route::Values;
use crate::slashes::Slashes;

impl Table {
    /// The routes of the host that a request names.
    #[inline]
    pub(crate) fn of_host(&self, head: &RequestHead) -> &Self {
        if self.has_hosts() { self.find_host(head.host()) } else { self }
    }

    #[inline(never)]
    fn find_host(&self, host: &str) -> &Self {
        if let Some(found) = self.hosts.get(host) {
            return found;
        }
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        let name = name.strip_suffix('.').unwrap_or(name);
        match self.hosts.get(name) {
            Some(found) => found,
            None => self.find_lower_case_host(&name.to_ascii_lowercase()).unwrap_or(self),
        }
    }

    /// The routes of a host, or of the longest domain that it is below.
    fn find_lower_case_host(&self, name: &str) -> Option<&Self> {
        let found = self.hosts.get(name);
        if found.is_some() || self.domains.is_empty() || name.len() > HOST_BYTES_MAX {
            return found;
        }
        name.match_indices('.').find_map(|(dot, _)| self.domains.get(&name[dot + 1..]))
    }

    /// The function for a request from a peer.
    #[inline]
    pub(crate) fn find_for(&self, head: &RequestHead, peer: impl Fn() -> Address) -> Found<'_> {
        if let Some(conditional) = &self.conditional
            && let Some(found) = self.find_conditional(conditional, head, &peer)
        {
            return found;
        }
        self.find(head)
    }

    /// The function for a request, if it is one that has conditions.
    #[inline(never)]
    fn find_conditional<'t>(
        &'t self,
        conditional: &'t ConditionalRoutes,
        head: &RequestHead,
        peer: &dyn Fn() -> Address,
    ) -> Option<Found<'t>> {
        let path = head.path_bytes();
        if self.slashes == Slashes::Refuse && normal_path::has_ambiguous_slash(path) {
            return None;
        }
        let unconditional = |text: &str| self.paths.at(text).ok().map(|found| &*self.routes[*found.value].normal);
        let in_form = |normal: &NormalPath| {
            let text = normal.text();
            conditional.find(text, unconditional(text), (head, peer), |at| normal.place(at))
        };
        if !head.has_irregular_target() && !normal_path::has_folds(path) {
            let text = head.path();
            return conditional.find(text, unconditional(text), (head, peer), same_place).map(Ok);
        }
        let found = match self.slashes {
            Slashes::Merge => in_form(&NormalPath::folded(path)),
            _ => in_form(&NormalPath::new(path)),
        }?;
        match found {
            (endpoint, _) if endpoint.is_gateway && self.slashes.folds_for_proxies() => {
                in_form(&NormalPath::folded(path)).map(Ok)
            }
            (endpoint, _) if !endpoint.is_gateway && std::str::from_utf8(path).is_err() => {
                Some(Err(Response::of_error(Status::BAD_REQUEST).into()))
            }
            found => Some(Ok(found)),
        }
    }

    /// The function for a request that no condition of a route has chosen.
    #[inline]
    fn find(&self, head: &RequestHead) -> Found<'_> {
        if head.has_irregular_target() || self.slashes == Slashes::Refuse {
            return self.find_irregular(head);
        }
        self.find_regular(head)
    }

    /// The function for a request whose path is its own normal form.
    #[inline]
    fn find_regular(&self, head: &RequestHead) -> Found<'_> {
        if self.routes.is_empty()
            && let Some(fallback) = &self.fallback
        {
            return Ok((fallback, None));
        }
        let path = head.path_bytes();
        if let Some(&at) = self.exact.get(path) {
            return self.routes[at].found(head, Values::NONE);
        }
        self.find_by_parameters(head)
    }

    /// The function for a request whose path may have another normal form, or may be refused.
    #[inline(never)]
    fn find_irregular(&self, head: &RequestHead) -> Found<'_> {
        let path = head.path_bytes();
        if self.slashes == Slashes::Refuse && normal_path::has_ambiguous_slash(path) {
            return Err(Response::of_error(Status::BAD_REQUEST).into());
        }
        let has_choice = !self.routes.is_empty() || self.fallback.is_none();
        let found = if has_choice && normal_path::is_encoded(path) {
            self.find_by_normal_path(head)
        } else {
            self.find_regular(head)
        };
        let is_text = || std::str::from_utf8(path).is_ok();
        match found {
            Ok((endpoint, _)) if !endpoint.is_gateway && !is_text() => {
                Err(Response::of_error(Status::BAD_REQUEST).into())
            }
            found => found,
        }
    }

    /// The same for a path that is its own normal form, which no route without parameters matches.
    #[inline(never)]
    fn find_by_parameters(&self, head: &RequestHead) -> Found<'_> {
        let path = head.path();
        if self.slashes == Slashes::Merge && normal_path::has_folds(path.as_bytes()) {
            return self.find_by_normal_path(head);
        }
        let found = self.look_up(path, head, same_place);
        let is_passed_on = matches!(found, Ok((endpoint, _)) if endpoint.is_gateway);
        if is_passed_on && self.slashes.folds_for_proxies() && normal_path::has_folds(path.as_bytes()) {
            return self.find_by_normal_path(head);
        }
        found
    }

    /// The same for a path that has another normal or folded form.
    #[inline(never)]
    fn find_by_normal_path(&self, head: &RequestHead) -> Found<'_> {
        let path = head.path_bytes();
        let look_up = |normal: &NormalPath| {
            let text = normal.text();
            match self.exact.get(text.as_bytes()) {
                Some(&at) => self.routes[at].found(head, Values::NONE),
                None => self.look_up(text, head, |at| normal.place(at)),
            }
        };
        let found = match self.slashes {
            Slashes::Merge => look_up(&NormalPath::folded(path)),
            _ => look_up(&NormalPath::new(path)),
        };
        match found {
            Ok((endpoint, _)) if endpoint.is_gateway && self.slashes.folds_for_proxies() => {
                look_up(&NormalPath::folded(path))
            }
            found => found,
        }
    }

    /// The function for a text that routes match; `place` finds a part of it in the path as it was sent.
    fn look_up(&self, text: &str, head: &RequestHead, place: impl Fn(usize) -> u16) -> Found<'_> {
        let Ok(found) = self.paths.at(text) else {
            return match &self.fallback {
                Some(fallback) => Ok((fallback, None)),
                None if text == "*" => Err(Response::with(Status::NO_CONTENT).into()),
                None => Err(Response::of_error(Status::NOT_FOUND).into()),
            };
        };
        self.routes[*found.value].found(head, Values::of(&found.params, text, place))
    }
}

/// The place in a path that is its own normal form. A head is shorter than 64 KiB.
fn same_place(at: usize) -> u16 {
    at as u16
}

/// The longest name of a host (RFC 1035 §2.3.4): none that is longer is below a domain.
const HOST_BYTES_MAX: usize = 255;
