//! HTTP/3: the streams of a QUIC connection, which have the application of the loop.

use std::rc::Rc;
use std::sync::Arc;

use tidegate_codec::StreamEndpoint;
use tidegate_engine::{EndpointSession, SessionStreams, Streams};
use tidegate_http3::{Config, server_stream};

use crate::app::App;
use crate::serving::handler::HttpHandler;
use crate::serving::http2::StreamClient;

/// The services of a connection: requests. Its unidirectional streams end below.
pub(crate) fn services<E: StreamEndpoint + 'static>(
    app: &Rc<App>,
    config: &Arc<Config>,
    session: &EndpointSession<E>,
) -> SessionStreams {
    let client = StreamClient::of_quic(app, session.handshake());
    let (app, config) = (app.clone(), config.clone());
    let requests = Streams::handle(move || (server_stream(&config, client.clone()), HttpHandler::new(app.clone())));
    SessionStreams { bidirectional: Some(requests), unidirectional: None }
}
