//! The flags of `serve` for files, as a configuration: one folder, with its surroundings.

use std::collections::HashSet;
use std::error::Error;
use std::path::PathBuf;

use clap::{ArgGroup, Args};
use tidegate::IpNet;
use tidegate::http::{Nat64Prefix, Response};

use crate::access_log::AccessLogFormat;
use crate::admission::parse_network;
use crate::config::{
    Action, BasicAuthRule, Config, ErrorPage, FileRules, Listen, Located, PathRule, Redirect, Route, SlashRule,
    UdpProxyRule, refuse_variable,
};
use crate::gateway::Source;
use crate::server::ServerOptions;

/// A directory, or a file with a configuration.
#[derive(Debug, Clone, Args)]
#[command(group(ArgGroup::new("site").args(["root", "connect_udp"]).multiple(true)))]
pub(crate) struct SitesOptions {
    /// Serve the files of DIR, with index.html for directories
    #[arg(long, value_name = "DIR", conflicts_with_all = ["config", "pcap", "log_bytes"])]
    root: Option<PathBuf>,
    /// Pass UDP on for clients (CONNECT-UDP, RFC 9298), at /.well-known/masque/udp/HOST/PORT/, over all HTTP versions; with --root, beside its files.
    /// Unless the next flags permit more, clients are those of this machine, and targets are public addresses of other machines
    #[arg(long, conflicts_with_all = ["config", "pcap", "log_bytes"])]
    connect_udp: bool,
    /// With --connect-udp: network whose clients have tunnels, may be repeated [default: 127.0.0.0/8 and ::1]. For those of
    /// other machines, ask for a password by --auth
    #[arg(long, value_name = "NETWORK", requires = "connect_udp", value_parser = parse_network)]
    connect_udp_clients: Vec<IpNet>,
    /// With --connect-udp: network of targets that are permitted although they are private, or of this machine; may be
    /// repeated
    #[arg(long, value_name = "NETWORK", requires = "connect_udp", value_parser = parse_network)]
    connect_udp_allow: Vec<IpNet>,
    /// With --connect-udp: network of targets that are refused, also where --connect-udp-allow has them; may be repeated
    #[arg(long, value_name = "NETWORK", requires = "connect_udp", value_parser = parse_network)]
    connect_udp_deny: Vec<IpNet>,
    /// With --connect-udp: prefix of NAT64 in this network, beside 64:ff9b::/96: the IPv4 address in a target has to be permitted
    /// too; may be repeated
    #[arg(long, value_name = "PREFIX", requires = "connect_udp")]
    connect_udp_nat64: Vec<Nat64Prefix>,
    /// Run FILE, as `tidegate run` does: a file without [[listen]] gets the listener of the flags
    #[arg(long, value_name = "FILE", conflicts_with_all = ["pcap", "log_bytes"])]
    config: Option<PathBuf>,
    /// With --root: list directories without index.html
    #[arg(long, requires = "root")]
    listing: bool,
    /// With --root: serve NAME.br, NAME.zst or NAME.gz in place of NAME to clients that accept it
    #[arg(long, requires = "root")]
    precompressed: bool,
    /// With --root: compress no response
    #[arg(long, requires = "root")]
    no_compression: bool,
    /// With --root: follow symbolic links, within DIR only
    #[arg(long, requires = "root")]
    symlinks: bool,
    /// With --root: value of the field Cache-Control
    #[arg(long, value_name = "VALUE", requires = "root")]
    cache_control: Option<String>,
    /// With --root: answer requests for the path FROM with a redirect (308) to TO; may be repeated
    #[arg(long, value_name = "FROM=TO", requires = "root")]
    redirect: Vec<String>,
    /// With --root: page for responses with STATUS, 400 to 599; may be repeated
    #[arg(long, value_name = "STATUS=FILE", requires = "root")]
    error_page: Vec<String>,
    /// With --root or --connect-udp: ask for a name and a password; may be repeated
    #[arg(long, value_name = "NAME:PASSWORD", requires = "site")]
    auth: Vec<String>,
    /// With --root or --connect-udp: log a line for each request: off, common, combined, json, opentelemetry, or a text with fields such as
    /// '{client.ip} {response.status}'
    #[arg(long, value_name = "FORMAT", default_value = "off", requires = "site")]
    access_log: AccessLogFormat,
}

impl SitesOptions {
    /// `None` without `--root`, `--connect-udp` and `--config`.
    pub(crate) fn source(&self, server: &ServerOptions) -> Result<Option<Source>, Box<dyn Error>> {
        if self.root.is_none() && !self.connect_udp && self.config.is_none() {
            return Ok(None);
        }
        let listen = server.as_listen()?;
        if let Some(path) = self.config.clone() {
            return Ok(Some(Source::File(path, Some(Box::new(listen)))));
        }
        let options = self.clone();
        Ok(Some(Source::Flags(Box::new(move || Ok(options.flags_as_config(&listen)?)))))
    }

    fn flags_as_config(&self, listen: &Listen) -> Result<Config, String> {
        let mut files = FileRules::default();
        (files.listing, files.precompressed, files.symlinks) = (self.listing, self.precompressed, self.symlinks);
        files.compression = !self.no_compression;
        if let Some(value) = &self.cache_control {
            Response::new()
                .header("Cache-Control", value)
                .map_err(|error| format!("`{}`: {error}", value.escape_debug()))?;
            files.cache_control = Some(literal(value)?);
        }
        let shared = Route { error_pages: self.error_pages()?, basic_auth: self.users()?, files, ..Route::default() };
        let mut routes = Vec::new();
        if let Some(root) = &self.root {
            if !root.is_dir() {
                return Err(format!("`{}` is not a directory", root.display()));
            }
            routes.push(Route { action: Some(Action::Folder(Located::of_flag(root.clone()))), ..shared.clone() });
        }
        if self.connect_udp {
            let (clients, allow) = (&self.connect_udp_clients, &self.connect_udp_allow);
            let rule = UdpProxyRule::of_flags(clients, allow, &self.connect_udp_deny, &self.connect_udp_nat64);
            if rule.has_all_clients() && self.auth.is_empty() && listen.client_ca.is_none() {
                let text = "--connect-udp-clients has all networks, and clients need no password: any of them sends datagrams to \
                            any target from the address of this machine. Add --auth NAME:PASSWORD or --tls-client-ca FILE, or \
                            name the networks of the clients";
                tracing::warn!(subsystem = "config", "{text}");
            }
            let path = Located::of_flag(PathRule::of_udp_targets());
            routes.push(Route { action: Some(Action::ConnectUdp(rule)), path, ..shared.clone() });
        }
        let mut from = HashSet::new();
        for redirect in &self.redirect {
            let (path, to) = split(redirect, '=', "FROM=TO")?;
            let path = PathRule::parse(&path)?;
            Response::new().header("Location", &to).map_err(|error| format!("`{}`: {error}", to.escape_debug()))?;
            if path.prefix().is_some() || !from.insert(path.clone()) {
                return Err(format!("`{redirect}`: a second redirect from the path, or one from several"));
            }
            let action = Some(Action::Redirect(Redirect { to: literal(&to)?, ..Redirect::default() }));
            routes.push(Route { action, path: Located::of_flag(path), ..shared.clone() });
        }
        let slashes = SlashRule::Keep;
        Ok(Config {
            telemetry: None,
            request_ids: None,
            access_log: self.access_log.clone(),
            slashes,
            trusted: Vec::new(),
            listen: vec![listen.clone()],
            upstreams: Vec::new(),
            routes,
        })
    }

    fn error_pages(&self) -> Result<Vec<ErrorPage>, String> {
        let page = |page: &String| {
            let (status, path) = split(page, '=', "STATUS=FILE")?;
            ErrorPage::new(&status, Located::of_flag(path.into())).map_err(|(text, _)| text)
        };
        self.error_page.iter().map(page).collect()
    }

    fn users(&self) -> Result<Option<BasicAuthRule>, String> {
        let users = self.auth.iter().map(|user| split(user, ':', "NAME:PASSWORD"));
        let users = users.collect::<Result<Vec<_>, _>>()?;
        Ok((!users.is_empty()).then(|| BasicAuthRule::of_users(users)))
    }
}

fn split(text: &str, at: char, form: &str) -> Result<(String, String), String> {
    let parts = text.split_once(at).map(|(left, right)| (left.to_owned(), right.to_owned()));
    parts.ok_or_else(|| format!("`{text}` does not have the form {form}"))
}

/// A text that is sent as it is.
fn literal(text: &str) -> Result<String, String> {
    match refuse_variable(text) {
        Some(mistake) => Err(mistake),
        None => Ok(text.to_owned()),
    }
}
