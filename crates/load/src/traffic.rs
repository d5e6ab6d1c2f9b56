//! `TrafficPlan` and `Traffic`: the requests, messages or commands of a load, as the user describes it and encoded for a loop.

use std::rc::Rc;
use std::sync::Arc;

use super::redis::{CommandCounts, CommandPlan, RedisCounts};
use super::request::{BadRequest, EncodedRequest, Http3Request, RequestTemplate, StreamRequest};
use super::results::HttpVersion;

/// The traffic of a load, for all threads.
#[derive(Debug, Clone)]
pub(crate) enum TrafficPlan {
    /// HTTP requests, sent in turn, or one WebSocket message. There is at least one.
    Http(Arc<[RequestTemplate]>),
    Redis(Arc<CommandPlan>),
}

/// The same, encoded for the connections of one loop.
#[derive(Debug, Clone)]
pub(crate) enum Traffic {
    Requests(Rc<[EncodedRequest]>),
    Streams(Rc<[Rc<StreamRequest>]>),
    Http3(Rc<[Rc<Http3Request>]>),
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
        match templates.first().map(|template| template.version) {
            Some(HttpVersion::Http2) => {
                return Ok(Traffic::Streams(encoded.into_iter().filter_map(|request| request.http2).collect()));
            }
            Some(HttpVersion::Http3) => {
                return Ok(Traffic::Http3(encoded.into_iter().filter_map(|request| request.http3).collect()));
            }
            Some(HttpVersion::Http1) | None => {}
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
