//! A client on a loop of its own, used from other threads.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

use tidegate::http::client::HandleError;
use tidegate::http::{Body, Client, Request, Router};

use crate::support::Served;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread, without a loop.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park_timeout(Duration::from_secs(60)),
        }
    }
}

fn router() -> Router {
    Router::new()
        .get("/", || "ebb and flow")
        .get("/large", || vec![b'a'; 4_000_000])
        .post("/echo", async |request: Request| tidegate::http::Response::new().body(request.into_body()))
        .get("/endless", || {
            tidegate::http::Response::new().body(Body::produce(async |mut writer| {
                loop {
                    writer.write(vec![b'a'; 10_000]).await?;
                }
            }))
        })
}

#[test]
fn threads_without_a_loop_send_requests_and_read_bodies() {
    let server = Served::start(router);
    let handle = Client::spawn(Client::new).expect("a thread");
    let threads: Vec<_> = (0..4)
        .map(|_| {
            let (handle, root, large) = (handle.clone(), server.uri("/"), server.uri("/large"));
            std::thread::spawn(move || {
                block_on(async {
                    for _ in 0..5 {
                        let response = handle.get(&root).send().await?;
                        assert_eq!(response.status().as_u16(), 200);
                        assert_eq!(response.headers()["content-length"], "12");
                        assert_eq!(response.into_body().bytes(100).await?, "ebb and flow");
                        let body = handle.get(&large).send().await?.into_body();
                        assert_eq!(body.bytes(5_000_000).await?.len(), 4_000_000);
                    }
                    Ok::<_, HandleError>(())
                })
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("it does not panic").expect("its requests succeed");
    }
}

#[test]
fn bodies_of_requests_come_from_any_thread() {
    let server = Served::start(router);
    let handle = Client::spawn(Client::new).expect("a thread");
    let body = block_on(async {
        let response = handle.post(server.uri("/echo")).header("X", "y").body("tide").send().await?;
        response.into_body().bytes(10).await
    });
    assert_eq!(body.expect("it is sent back"), "tide");
}

#[test]
fn a_body_that_is_dropped_and_a_request_that_is_dropped_end() {
    let server = Served::start(router);
    let handle = Client::spawn(Client::new).expect("a thread");
    block_on(async {
        let mut body = handle.get(server.uri("/endless")).send().await?.into_body();
        for _ in 0..100 {
            assert!(body.next().await.transpose()?.is_some());
        }
        drop(body);
        let error = handle.get(server.uri("/endless")).send().await?.into_body().bytes(1_000_000).await;
        assert_eq!(error, Err(HandleError::TooLong));
        drop(handle.get(server.uri("/")).send());
        assert_eq!(handle.get(server.uri("/")).send().await?.into_body().bytes(100).await?, "ebb and flow");
        Ok::<_, HandleError>(())
    })
    .expect("the requests succeed");
}

#[test]
fn errors_cross_threads_as_texts() {
    let handle = Client::spawn(Client::new).expect("a thread");
    let error = block_on(handle.get("http://127.0.0.1:1/").send()).expect_err("no server is there");
    assert!(matches!(&error, HandleError::Failed { is_connect: true, is_timeout: false, .. }), "{error}");
    let error = block_on(handle.get("gopher://a/").send()).expect_err("the scheme is another");
    assert!(error.to_string().contains("neither http nor https"), "{error}");
}
