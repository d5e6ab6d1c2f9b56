//! The service of `tides.proto`: one call of each kind.

use std::pin::Pin;

use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use tonic::codec::CompressionEncoding;
use tonic::service::Routes;
use tonic::{Request, Response, Status, Streaming};

use tides::tides_server::{Tides, TidesServer};
use tides::{Harbour, Level, ListRequest, Summary, Tide};

/// The code that `tonic-prost-build` and `protox` have generated from `tides.proto`. It is a part of the repository, so
/// a build needs no compiler of protocol buffers.
#[allow(clippy::all, clippy::pedantic, clippy::nursery, clippy::restriction, reason = "the code is generated")]
#[allow(missing_docs, unreachable_pub, unused_qualifications, unused_results, dead_code, reason = "the same")]
pub(crate) mod tides {
    include!("tides.v1.rs");
}

/// The same description for reflection.
const DESCRIPTOR: &[u8] = include_bytes!("tides.bin");

#[derive(Debug, Default)]
pub(crate) struct Harbours;

type Tidings = Pin<Box<dyn Stream<Item = Result<Tide, Status>> + Send>>;

#[tonic::async_trait]
impl Tides for Harbours {
    type ListStream = Tidings;
    type WatchStream = Tidings;

    async fn next(&self, request: Request<Harbour>) -> Result<Response<Tide>, Status> {
        let Harbour { name } = request.into_inner();
        if name.is_empty() {
            return Err(Status::invalid_argument("a harbour has a name"));
        }
        Ok(Response::new(tide(name, 0)))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<Tidings>, Status> {
        if let Some(client) = client_of(&request) {
            println!("{client} asks for a list");
        }
        let ListRequest { harbour, count } = request.into_inner();
        Ok(Response::new(Box::pin(stream::iter(0..count).map(move |index| Ok(tide(harbour.clone(), index))))))
    }

    async fn measure(&self, request: Request<Streaming<Level>>) -> Result<Response<Summary>, Status> {
        let levels = request.into_inner();
        let (count, sum) =
            levels.try_fold((0, 0.0), async |(count, sum), level| Ok((count + 1, sum + level.metres))).await?;
        let mean = if count == 0 { 0.0 } else { sum / f64::from(count) };
        Ok(Response::new(Summary { count, mean }))
    }

    async fn watch(&self, request: Request<Streaming<Level>>) -> Result<Response<Tidings>, Status> {
        let mut before = 0.0;
        let tides = request.into_inner().map_ok(move |Level { metres }| {
            let rises = metres > std::mem::replace(&mut before, metres);
            Tide { harbour: "all".to_owned(), level: metres, rises }
        });
        Ok(Response::new(Box::pin(tides)))
    }
}

fn tide(harbour: String, index: u32) -> Tide {
    Tide { harbour, level: f64::from(index % 7), rises: index.is_multiple_of(2) }
}

/// The address of the client, on a server with `with_peer`. `Request::remote_addr` is for the server of tonic alone.
fn client_of<T>(request: &Request<T>) -> Option<std::net::SocketAddr> {
    request.extensions().get::<tidegate::Address>().and_then(tidegate::Address::ip)
}

/// The service with compression, beside those for health and reflection.
pub(crate) async fn routes() -> Result<Routes, Box<dyn std::error::Error>> {
    let tides = TidesServer::new(Harbours)
        .accept_compressed(CompressionEncoding::Gzip)
        .send_compressed(CompressionEncoding::Gzip);
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter.set_serving::<TidesServer<Harbours>>().await;
    let reflection =
        tonic_reflection::server::Builder::configure().register_encoded_file_descriptor_set(DESCRIPTOR).build_v1()?;
    Ok(Routes::new(tides).add_service(health).add_service(reflection).prepare())
}
