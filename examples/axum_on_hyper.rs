//! The router of the example `axum`, served by axum's own server: by hyper on tokio, on one thread.
//!
//! ```text
//! cargo run --example axum_on_hyper                                # checks itself, and ends
//! cargo run --release --example axum_on_hyper -- 127.0.0.1:8080    # serves
//! ```

#![forbid(unsafe_code)]

#[path = "axum_router/mod.rs"]
mod axum_router;

use std::error::Error;

use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

fn main() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let Some(address) = std::env::args().nth(1) else { return check().await };
        let listener = TcpListener::bind(&address).await?;
        println!("listening on http://{}", listener.local_addr()?);
        serve(listener).await
    })
}

/// Serves at a free port while the responses are compared.
async fn check() -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::select! {
        served = serve(listener) => served,
        checked = tokio::task::spawn_blocking(move || axum_router::check(address)) => Ok(checked??),
    }
}

/// Serves connections with the settings that make hyper fastest here: pipelined responses in one write, and no delay of
/// short ones.
async fn serve(listener: TcpListener) -> Result<(), Box<dyn Error>> {
    let router = axum_router::router();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let connection = http1::Builder::new().pipeline_flush(true).serve_connection(TokioIo::new(stream), service);
            // A peer that breaks its connection concerns no other.
            let _ = connection.await;
        });
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn it_answers() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        runtime.block_on(super::check()).unwrap();
    }
}
