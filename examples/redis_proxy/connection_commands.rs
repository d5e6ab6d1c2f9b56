//! HELLO, AUTH, CLIENT, SELECT and RESET: commands that concern the connection of a client to the proxy.

use tidegate::redis::{ClientError, Command, OutgoingReply, Version, error_for_count};

use crate::session::Session;
use crate::upstream::{ConnectionKey, error_for, error_for_failure};

impl Session {
    /// Executes a command behind whose replies nothing else is under way.
    pub(crate) async fn change_connection(&mut self, command: &Command) -> OutgoingReply {
        let is = |name: &str| command.name().eq_ignore_ascii_case(name.as_bytes());
        match command.count() {
            _ if is("HELLO") => self.hello(command).await,
            2 | 3 if is("AUTH") => self.authenticate(command),
            2 if is("SELECT") => self.select(command.argument(1).unwrap_or_default()).await,
            1 if is("RESET") => self.reset(),
            2.. if is("CLIENT") => self.client(command),
            // It waits for the writes of its own connection, and those were made on another.
            _ if is("WAIT") || is("WAITAOF") => OutgoingReply::error("ERR this proxy does not have the command"),
            _ => error_for_count(command),
        }
    }

    fn authenticate(&mut self, command: &Command) -> OutgoingReply {
        let (first, second) = (command.argument(1).unwrap_or_default(), command.argument(2));
        let (user, password) = second.map_or((&b"default"[..], first), |password| (first, password));
        match &self.upstream.password {
            None if second.is_none() => OutgoingReply::error(
                "ERR AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ),
            _ if self.is_right(user, password) => {
                self.is_authenticated = true;
                self.reply(OutgoingReply::Restricted(false));
                OutgoingReply::ok()
            }
            _ => wrong_password(),
        }
    }

    fn is_right(&self, user: &[u8], password: &[u8]) -> bool {
        // It takes the same time wherever the first wrong byte is.
        let is_equal = |right: &[u8]| {
            let differences = right.iter().zip(password).fold(0, |all, (right, given)| all | (right ^ given));
            right.len() == password.len() && std::hint::black_box(differences) == 0
        };
        user == b"default" && self.upstream.password.as_deref().is_none_or(is_equal)
    }

    /// HELLO [version [AUTH user password] [SETNAME name]]; the rest of the reply is the upstream's.
    async fn hello(&mut self, command: &Command) -> OutgoingReply {
        let mut arguments = command.arguments();
        let version = match arguments.next() {
            None => self.key.version,
            Some(b"2") => Version::Resp2,
            Some(b"3") => Version::Resp3,
            Some(_) => return OutgoingReply::error("NOPROTO unsupported protocol version"),
        };
        let mut name = None;
        while let Some(option) = arguments.next() {
            if option.eq_ignore_ascii_case(b"AUTH") {
                let (user, password) = (arguments.next().unwrap_or_default(), arguments.next().unwrap_or_default());
                if !self.is_right(user, password) {
                    return wrong_password();
                }
                self.is_authenticated = true;
                self.reply(OutgoingReply::Restricted(false));
            } else if option.eq_ignore_ascii_case(b"SETNAME") {
                name = arguments.next().map(<[u8]>::to_vec);
            } else {
                return OutgoingReply::error("ERR syntax error in HELLO");
            }
        }
        if !self.is_authenticated {
            return OutgoingReply::error(
                "NOAUTH HELLO must be called with the client already authenticated, or with AUTH",
            );
        }
        let key = ConnectionKey { version, ..self.key };
        let watching = self.watching();
        let call = match (&watching, self.upstream.shared(key)) {
            (Some(client), _) if version == Version::Resp2 => client.cmd("HELLO").arg("2"),
            (Some(client), _) => client.cmd("HELLO").arg("3"),
            (None, Ok(client)) => client.cmd("HELLO"),
            (None, Err(error)) => return error_for(&error),
        };
        let mut reply = call.wire(&self.upstream.budget);
        let mut wire = Vec::new();
        while let Some(bytes) = reply.next().await {
            match bytes {
                Ok(bytes) => wire.extend_from_slice(&bytes),
                Err(error) => return error_for_failure(&error),
            }
        }
        if !wire.starts_with(b"-") {
            if watching.is_some() {
                self.set_changed();
            }
            self.key = key;
            self.reply(OutgoingReply::Version(version));
            self.name = name.unwrap_or_else(|| std::mem::take(&mut self.name));
        }
        OutgoingReply::Wire(wire.into())
    }

    async fn select(&mut self, number: &[u8]) -> OutgoingReply {
        let Some(database) = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok()) else {
            return OutgoingReply::error("ERR value is not an integer or out of range");
        };
        let key = ConnectionKey { database, ..self.key };
        if let Some(client) = self.watching() {
            // The keys that are watched are those of the database before, on that connection.
            return match client.cmd("SELECT").arg(number).await {
                Ok(_) => {
                    self.set_changed();
                    self.key = key;
                    OutgoingReply::ok()
                }
                Err(ClientError::Reply(error)) => OutgoingReply::error(error.text().to_vec()),
                Err(error) => error_for_failure(&error),
            };
        }
        match self.upstream.check_database(key).await {
            Ok(()) => {
                self.key = key;
                OutgoingReply::ok()
            }
            Err(error) => error,
        }
    }

    /// The subcommands that client libraries send. Those about other clients are not for a proxy.
    fn client(&mut self, command: &Command) -> OutgoingReply {
        let is = |name: &str| command.argument(1).is_some_and(|word| word.eq_ignore_ascii_case(name.as_bytes()));
        match command.count() {
            2 if is("ID") => OutgoingReply::Integer(self.id as i64),
            2 if is("GETNAME") && self.name.is_empty() => OutgoingReply::Null,
            2 if is("GETNAME") => OutgoingReply::bulk(self.name.clone()),
            3 if is("SETNAME") => {
                let name = command.argument(2).unwrap_or_default();
                if name.len() > NAME_BYTES_MAX || !name.iter().all(u8::is_ascii_graphic) {
                    let text = "ERR Client names cannot contain spaces, newlines or special characters.";
                    return OutgoingReply::error(text);
                }
                self.name = name.to_vec();
                OutgoingReply::ok()
            }
            4 if is("SETINFO") => OutgoingReply::ok(),
            3 if is("NO-EVICT") || is("NO-TOUCH") => OutgoingReply::ok(),
            _ => OutgoingReply::error("ERR this proxy does not have the subcommand of CLIENT"),
        }
    }
}

fn wrong_password() -> OutgoingReply {
    OutgoingReply::error("WRONGPASS invalid username-password pair or user is disabled.")
}

const NAME_BYTES_MAX: usize = 1024;
