//! gRPC, and the port for HTTP/2 alone.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use arena::Options;
use arena::grpc::benchmark::benchmark_service_client::BenchmarkServiceClient;
use arena::grpc::benchmark::{StreamRequest, SumRequest};
use tidegate::ServerHandle;
use tidegate::http::{Client, Version};
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use crate::checks::FOLDER;

/// A server with an address for HTTP/2 alone, which is the second.
struct Http2(ServerHandle);

impl Http2 {
    fn start() -> Self {
        let options = Options { loops: Some(1), http2_address: Some("127.0.0.1:0"), ..Options::default() };
        Self(arena::start("127.0.0.1:0", &FOLDER, options).unwrap())
    }

    fn alone(&self) -> String {
        let listeners = self.0.listeners();
        listeners.iter().flat_map(|listener| listener.addresses()).nth(1).expect("a second address").to_string()
    }
}

impl Drop for Http2 {
    fn drop(&mut self) {
        self.0.drain(Duration::ZERO);
    }
}

/// Runs a test of calls on a tokio runtime, at both addresses.
fn at_both_addresses(check: impl AsyncFn(BenchmarkServiceClient<Channel>)) {
    let server = Http2::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    for address in [server.0.address().to_string(), server.alone()] {
        let endpoint = Endpoint::from_shared(format!("http://{address}")).unwrap().timeout(Duration::from_secs(20));
        runtime.block_on(async { check(BenchmarkServiceClient::new(endpoint.connect().await.unwrap())).await });
    }
}

#[test]
fn a_call_returns_the_sum() {
    at_both_addresses(async |mut client| {
        for (a, b, sum) in [(1, 2, 3), (0, 0, 0), (-5, 3, -2), (i32::MAX, i32::MIN, -1)] {
            assert_eq!(client.get_sum(SumRequest { a, b }).await.unwrap().into_inner().result, sum);
        }
        let error = client.get_sum(SumRequest { a: i32::MAX, b: 1 }).await.unwrap_err();
        assert_eq!(error.code(), Code::OutOfRange);
    });
}

#[test]
fn a_stream_has_as_many_sums_as_the_call_asks_for() {
    at_both_addresses(async |mut client| {
        for count in [0, 1, 5_000] {
            let mut sums = client.stream_sum(StreamRequest { a: 40, b: 2, count }).await.unwrap().into_inner();
            let mut index = 0;
            while let Some(sum) = sums.message().await.unwrap() {
                assert_eq!(sum.result, 42 + index);
                index += 1;
            }
            assert_eq!(index, count);
        }
        let refused = [
            (StreamRequest { a: 0, b: 0, count: -1 }, Code::InvalidArgument),
            (StreamRequest { a: 0, b: 0, count: i32::MAX }, Code::InvalidArgument),
            (StreamRequest { a: i32::MAX, b: 0, count: 2 }, Code::OutOfRange),
            (StreamRequest { a: i32::MAX, b: 1, count: 1 }, Code::OutOfRange),
        ];
        for (request, code) in refused {
            assert_eq!(client.stream_sum(request).await.unwrap_err().code(), code, "{request:?}");
        }
    });
}

#[test]
fn a_stream_of_a_client_that_leaves_harms_nobody() {
    at_both_addresses(async |mut client| {
        for _ in 0..20 {
            let request = StreamRequest { a: 1, b: 1, count: 1_000_000 };
            let mut sums = client.stream_sum(request).await.unwrap().into_inner();
            assert_eq!(sums.message().await.unwrap().unwrap().result, 2);
        }
        assert_eq!(client.get_sum(SumRequest { a: 1, b: 1 }).await.unwrap().into_inner().result, 2);
    });
}

/// HTTP/2 with prior knowledge, and an HTTP/1.1 request, which the other address serves.
#[tidegate::test]
async fn the_port_for_http2_refuses_other_versions() -> Result<(), Box<dyn std::error::Error>> {
    let server = Http2::start();
    let client = Client::builder().http2_prior_knowledge(true).build();
    for address in [server.0.address().to_string(), server.alone()] {
        for (target, text) in [("/baseline2?a=1&b=1", "2"), ("/json/1?m=1", "{\"items\":["), ("/static/reset.css", "")]
        {
            let response = client.get(format!("http://{address}{target}")).send().await?;
            assert_eq!((response.status().as_u16(), response.version()), (200, Version::HTTP_2), "{target}");
            assert!(response.text().await?.starts_with(text), "{target}");
        }
    }
    let addresses = [(server.0.address().to_string(), "200"), (server.alone(), "505")];
    tidegate::blocking(move || {
        for (address, status) in addresses {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream.write_all(b"GET /pipeline HTTP/1.1\r\nHost: arena\r\nConnection: close\r\n\r\n").unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        }
    })
    .await?;
    Ok(())
}
