//! `Account`: memory that an application keeps for a connection, outside of the queues of the connection.
//!
//! A loop has a table of the connections for which something is charged, by token; the others have no entry. So a charge
//! may outlive its connection, and a connection that changes its application keeps its charges.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use tidegate_buffer::{Charge, Pool};
use tidegate_sys::Token;

/// The charges of a loop.
pub(crate) struct Charges {
    pool: Pool,
    by_connection: RefCell<HashMap<Token, usize>>,
}

impl Charges {
    pub(crate) fn new(pool: &Pool) -> Rc<Self> {
        Rc::new(Self { pool: pool.clone(), by_connection: RefCell::default() })
    }

    pub(crate) fn account(self: &Rc<Self>, token: Token) -> Account {
        Account { charges: self.clone(), token }
    }

    /// The bytes that are charged to a connection.
    pub(crate) fn of(&self, token: Token) -> usize {
        self.by_connection.borrow().get(&token).copied().unwrap_or(0)
    }

    fn replace(&self, token: Token, before: usize, after: usize) {
        let mut table = self.by_connection.borrow_mut();
        let bytes = table.entry(token).or_default();
        *bytes = *bytes + after - before;
        if *bytes == 0 {
            table.remove(&token);
            if table.is_empty() {
                *table = HashMap::default();
            }
        }
    }
}

/// The account of a connection, or of a stream: memory that its application keeps for it, such as a collected body.
/// [`Context::account`](crate::Context::account) and [`Channel::account`](crate::Channel::account) return it.
///
/// When the memory of the loop is used up, the loop closes the connections that have the most bytes in queues, in their
/// codecs, and in their accounts.
///
/// ```
/// use tidegate::framing::Lines;
/// use tidegate::{ConnectionCharge, Context, Handler, Outcome, Slice};
///
/// /// Collects lines until an empty one comes.
/// #[derive(Default)]
/// struct Collect {
///     text: Vec<u8>,
///     charge: Option<ConnectionCharge>,
/// }
///
/// impl Handler<Lines> for Collect {
///     type Post = ();
///
///     fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
///         if line.is_empty() {
///             self.charge = None;
///             return cx.send(std::mem::take(&mut self.text).into()).into();
///         }
///         self.text.extend_from_slice(&line);
///         self.charge.get_or_insert_with(|| cx.account().charge(0)).resize(self.text.capacity());
///         Outcome::Continue
///     }
/// }
/// ```
#[derive(Clone)]
pub struct Account {
    charges: Rc<Charges>,
    token: Token,
}

impl Account {
    /// Counts `bytes` as memory of the connection until the charge is dropped.
    #[must_use = "the bytes are no longer counted once the charge is dropped"]
    pub fn charge(&self, bytes: usize) -> ConnectionCharge {
        let mut charge = ConnectionCharge { account: self.clone(), charge: self.charges.pool.charge(0) };
        charge.resize(bytes);
        charge
    }
}

/// Memory that counts as that of a connection until this is dropped: see [`Account`].
pub struct ConnectionCharge {
    account: Account,
    charge: Charge,
}

impl ConnectionCharge {
    /// The bytes that it counts.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.charge.bytes()
    }

    /// Counts `bytes` from now on.
    pub fn resize(&mut self, bytes: usize) {
        let before = self.charge.bytes();
        if bytes != before {
            self.account.charges.replace(self.account.token, before, bytes);
            self.charge.resize(bytes);
        }
    }
}

impl Drop for ConnectionCharge {
    fn drop(&mut self) {
        self.resize(0);
    }
}

impl fmt::Debug for Account {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Account").field("bytes", &self.charges.of(self.token)).finish_non_exhaustive()
    }
}

impl fmt::Debug for ConnectionCharge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectionCharge").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}
