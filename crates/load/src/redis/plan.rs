//! `CommandPlan`: all that the connections of a load of Redis commands share.

use super::mix::CommandMix;
use crate::url::Login;

/// What the connections of a load of Redis commands send.
#[derive(Debug, Clone)]
pub(crate) struct CommandPlan {
    pub(crate) mix: CommandMix,
    pub(crate) login: Login,
    pub(crate) database: u32,
    /// Messages are published instead of the commands of the mix.
    pub(crate) publish: Option<PublishPlan>,
}

/// Messages that are published to subscribers.
#[derive(Debug, Clone)]
pub(crate) struct PublishPlan {
    /// The length of a message.
    pub(crate) message_bytes: usize,
    pub(crate) channel: String,
}
