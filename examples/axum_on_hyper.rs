//! The router of the example `axum`, served by axum's own server: by hyper on tokio, on one thread.
//!
//! ```text
//! cargo run --release --example axum_on_hyper -- 127.0.0.1:8080
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
    let address = std::env::args().nth(1).ok_or("which address? for example: axum_on_hyper 127.0.0.1:8080")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(&address).await?;
        println!("listening on http://{}", listener.local_addr()?);
        serve(listener).await
    })
}

/// Serves connections with what makes hyper fastest here: pipelined responses in one write, and no delay of short ones.
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
    use std::io::{Read, Write};

    use super::*;

    #[test]
    fn it_answers() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let asked = std::thread::spawn(move || {
            let mut stream = std::net::TcpStream::connect(address).unwrap();
            stream.write_all(b"GET /plaintext HTTP/1.1\r\nHost: sea\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            answer
        });
        runtime.block_on(async {
            let serving = tokio::task::spawn_blocking(move || asked.join().unwrap());
            tokio::select! {
                served = serve(listener) => panic!("{served:?}"),
                answer = serving => assert!(answer.unwrap().ends_with("\r\n\r\nHello, World!")),
            }
        });
    }
}
