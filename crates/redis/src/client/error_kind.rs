//! `ErrorKind`: what the code of a server's error means for the caller.

use std::fmt;

/// A kind of errors of servers. Its text says what to do.
///
/// ```
/// use tidegate::redis::ErrorKind;
///
/// assert_eq!(ErrorKind::of_code(b"LOADING"), ErrorKind::Loading);
/// assert!(ErrorKind::Loading.may_repeat() && !ErrorKind::NoAuth.may_repeat());
/// assert_eq!(ErrorKind::NoAuth.to_string(), "the server demands a password: set the client's");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// `READONLY`: the server is a replica.
    ReadOnly,
    /// `LOADING`: the server reads its data.
    Loading,
    /// `MASTERDOWN`: the server is a replica that has lost its master.
    MasterDown,
    /// `CLUSTERDOWN`: the cluster has lost the majority of its servers, or a slot.
    ClusterDown,
    /// `TRYAGAIN`: the keys are under way from one server to another.
    TryAgain,
    /// `BUSY`: a script has been running for too long.
    Busy,
    /// `OOM`: the server's memory is full.
    OutOfMemory,
    /// `NOREPLICAS`: too few replicas would receive the write.
    NoReplicas,
    /// `MISCONF`: the server cannot save its data.
    CannotSave,
    /// `NOAUTH`, `WRONGPASS` or `NOPERM`.
    NoAuth,
    /// `MOVED` or `ASK`: another server of the cluster has the key.
    Moved,
    /// `CROSSSLOT`: the keys belong to different slots.
    CrossSlot,
    /// `EXECABORT`: no command of the transaction was executed.
    ExecAbort,
    /// `NOSCRIPT`: the server does not have the script.
    NoScript,
    /// `WRONGTYPE`: the key has a value of another type.
    WrongType,
    /// Any other code, `ERR` for example.
    Other,
}

impl ErrorKind {
    /// All kinds.
    pub const ALL: [Self; 16] = [
        Self::ReadOnly,
        Self::Loading,
        Self::MasterDown,
        Self::ClusterDown,
        Self::TryAgain,
        Self::Busy,
        Self::OutOfMemory,
        Self::NoReplicas,
        Self::CannotSave,
        Self::NoAuth,
        Self::Moved,
        Self::CrossSlot,
        Self::ExecAbort,
        Self::NoScript,
        Self::WrongType,
        Self::Other,
    ];

    /// The kind of a code.
    #[must_use]
    pub fn of_code(code: &[u8]) -> Self {
        match code {
            b"READONLY" => Self::ReadOnly,
            b"LOADING" => Self::Loading,
            b"MASTERDOWN" => Self::MasterDown,
            b"CLUSTERDOWN" => Self::ClusterDown,
            b"TRYAGAIN" => Self::TryAgain,
            b"BUSY" => Self::Busy,
            b"OOM" => Self::OutOfMemory,
            b"NOREPLICAS" => Self::NoReplicas,
            b"MISCONF" => Self::CannotSave,
            b"NOAUTH" | b"WRONGPASS" | b"NOPERM" => Self::NoAuth,
            b"MOVED" | b"ASK" => Self::Moved,
            b"CROSSSLOT" => Self::CrossSlot,
            b"EXECABORT" => Self::ExecAbort,
            b"NOSCRIPT" => Self::NoScript,
            b"WRONGTYPE" => Self::WrongType,
            _ => Self::Other,
        }
    }

    /// Whether the command may succeed later without a change. The server has not executed it; a script with such an error
    /// may have been executed in part.
    #[must_use]
    pub const fn may_repeat(self) -> bool {
        matches!(
            self,
            Self::ReadOnly
                | Self::Loading
                | Self::MasterDown
                | Self::ClusterDown
                | Self::TryAgain
                | Self::Busy
                | Self::OutOfMemory
                | Self::NoReplicas
                | Self::CannotSave
        )
    }

    /// A name for metrics: lower case, with underscores.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReadOnly => "read_only",
            Self::Loading => "loading",
            Self::MasterDown => "master_down",
            Self::ClusterDown => "cluster_down",
            Self::TryAgain => "try_again",
            Self::Busy => "busy",
            Self::OutOfMemory => "out_of_memory",
            Self::NoReplicas => "no_replicas",
            Self::CannotSave => "cannot_save",
            Self::NoAuth => "no_auth",
            Self::Moved => "moved",
            Self::CrossSlot => "cross_slot",
            Self::ExecAbort => "exec_abort",
            Self::NoScript => "no_script",
            Self::WrongType => "wrong_type",
            Self::Other => "other",
        }
    }
}

impl fmt::Display for ErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ReadOnly => "the server is a replica: send the command to its master",
            Self::Loading => "the server reads its data: repeat the command later",
            Self::MasterDown => "the replica has lost its master: read from the master, or repeat the command later",
            Self::ClusterDown => "the cluster is incomplete: repeat the command later",
            Self::TryAgain => "the keys are under way between servers: repeat the command later",
            Self::Busy => "a script occupies the server: repeat the command later",
            Self::OutOfMemory => "the server's memory is full: delete values, or raise maxmemory",
            Self::NoReplicas => "too few replicas are connected: repeat the command later",
            Self::CannotSave => "the server cannot save its data: look into its log",
            Self::NoAuth => "the server demands a password: set the client's",
            Self::Moved => "another server has the key: use a client of the cluster",
            Self::CrossSlot => "the keys belong to different slots: give them a common part in braces",
            Self::ExecAbort => "the transaction was not executed: correct the command that was refused",
            Self::NoScript => "the server does not have the script: send its source",
            Self::WrongType => "the key has a value of another type",
            Self::Other => "the server refuses the command",
        })
    }
}
