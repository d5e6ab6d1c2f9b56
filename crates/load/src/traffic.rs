//! `TrafficPlan` and `Traffic`: what the connections of a load send, as the user describes it and encoded for a loop.

use std::rc::Rc;
use std::sync::Arc;

use super::redis::{CommandCounts, CommandPlan, RedisCounts};
use super::request::{BadRequest, EncodedRequest, RequestTemplate, StreamRequest};

/// What connections send, for all threads.
#[derive(Debug, Clone)]
pub(crate) enum TrafficPlan {
    /// Requests of HTTP, sent in turn, or one message of a WebSocket. There is at least one.
    Http(Arc<[RequestTemplate]>),
    Redis(Arc<CommandPlan>),
}

/// The same, encoded for the connections of one loop.
#[derive(Debug, Clone)]
pub(crate) enum Traffic {
    Requests(Rc<[EncodedRequest]>),
    Streams(Rc<[Rc<StreamRequest>]>),
    Messages(Rc<EncodedRequest>),
    Commands(Arc<CommandPlan>),
}

impl TrafficPlan {
    /// Encodes the requests for the connections of a loop.
    ///
    /// # Errors
    /// If a part is not valid in HTTP: names the part.
    pub(crate) fn encode(&self) -> Result<Traffic, BadRequest> {
        let templates = match self {
            Self::Redis(plan) => return Ok(Traffic::Commands(plan.clone())),
            Self::Http(templates) => templates,
        };
        let encoded = templates.iter().map(RequestTemplate::encode).collect::<Result<Vec<_>, _>>()?;
        if templates.iter().any(|template| template.is_http2) {
            return Ok(Traffic::Streams(encoded.into_iter().filter_map(|request| request.http2).collect()));
        }
        match <[EncodedRequest; 1]>::try_from(encoded) {
            Ok([request]) if request.message.is_some() => Ok(Traffic::Messages(request.into())),
            Ok(request) => Ok(Traffic::Requests(request.into())),
            Err(requests) => Ok(Traffic::Requests(requests.into())),
        }
    }
}

impl Traffic {
    /// Whether a connection has to be opened by a handshake or a first command.
    pub(crate) fn opens(&self) -> bool {
        matches!(self, Self::Messages(_) | Self::Commands(_))
    }

    /// The counts of the replies to these commands, all zero.
    pub(crate) fn redis_counts(&self) -> RedisCounts {
        let Self::Commands(plan) = self else { return RedisCounts::default() };
        let names: Vec<_> = match &plan.publish {
            Some(_) => vec!["PUBLISH".to_owned()],
            None => plan.mix.commands.iter().map(|command| command.name.clone()).collect(),
        };
        let commands = names.into_iter().map(|name| CommandCounts { name, ..CommandCounts::default() }).collect();
        RedisCounts { commands, ..RedisCounts::default() }
    }
}
