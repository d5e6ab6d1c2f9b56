//! The pool: its limits, its queue, and connections that end while they are idle.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use tidegate::http::client::{ClientError, ClientLimits, Phase};
use tidegate::http::{Client, Router};
use tidegate::task;

use crate::support::{Served, run};

fn client(change: impl FnOnce(&mut ClientLimits)) -> Client {
    let mut limits = ClientLimits::default();
    change(&mut limits);
    Client::builder().limits(limits).build()
}

fn slow() -> Router {
    Router::new().get("/{number}", async |request: tidegate::http::Request| {
        task::sleep(Duration::from_millis(5)).await;
        request.path().to_owned()
    })
}

#[test]
fn requests_beyond_the_limit_wait_in_their_order() {
    let server = Served::start(slow);
    let uri = server.uri("");
    run(async move {
        let client = client(|limits| limits.connections_per_origin_max = 2);
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..12 {
            let (client, uri, order) = (client.clone(), uri.clone(), order.clone());
            tasks.push(task::spawn(async move {
                let response = client.get(format!("{uri}/{number}")).send().await?;
                assert!(client.connections() <= 2);
                order.borrow_mut().push(number);
                assert_eq!(response.text().await?, format!("/{number}"));
                Ok::<_, ClientError>(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        let order = order.borrow();
        // Two are under way at a time, so a response may overtake the one before it and no other.
        assert!(order.iter().enumerate().all(|(at, number)| at.abs_diff(*number) <= 1), "{order:?}");
        Ok(())
    });
}

#[test]
fn a_request_that_waits_no_more_leaves_the_queue() {
    let server = Served::start(slow);
    let uri = server.uri("/1");
    run(async move {
        let client = client(|limits| {
            limits.connections_per_origin_max = 1;
            limits.waiting_max = 2;
        });
        let first = client.get(&uri).send().await?;
        let waits = |client: &Client| task::timeout(Duration::from_millis(5), client.get(&uri).send());
        for _ in 0..5 {
            assert!(waits(&client).await.is_err(), "there is no connection for it");
        }
        let waiting: Vec<_> = (0..2)
            .map(|_| {
                let (client, uri) = (client.clone(), uri.clone());
                task::spawn(async move { client.get(&uri).send().await.map(|response| response.status().as_u16()) })
            })
            .collect();
        task::sleep(Duration::from_millis(1)).await;
        let error = client.get(&uri).send().await.expect_err("two wait already");
        assert!(matches!(error, ClientError::PoolFull), "{error}");
        assert_eq!(first.text().await?, "/1");
        for task in waiting {
            assert_eq!(task.await??, 200);
        }
        Ok(())
    });
}

#[test]
fn a_request_waits_for_a_connection_only_up_to_its_deadline() {
    let server = Served::start(slow);
    let uri = server.uri("/1");
    run(async move {
        let client = client(|limits| {
            limits.connections_max = 1;
            limits.pool_timeout = Duration::from_millis(10);
        });
        let first = client.get(&uri).send().await?;
        let error = client.get(&uri).send().await.expect_err("the connection is in use");
        assert!(matches!(error, ClientError::Timeout(Phase::Pool)), "{error}");
        assert_eq!(first.text().await?, "/1");
        assert_eq!(client.get(&uri).send().await?.text().await?, "/1");
        Ok(())
    });
}

#[test]
fn an_idle_connection_makes_room_for_another_origin() {
    let (one, other) = (Served::start(slow), Served::start(slow));
    let uris = [one.uri("/1"), other.uri("/2")];
    run(async move {
        let client = client(|limits| limits.connections_max = 1);
        for _ in 0..2 {
            for (uri, path) in uris.iter().zip(["/1", "/2"]) {
                assert_eq!(client.get(uri).send().await?.text().await?, path);
                assert_eq!((client.connections(), client.idle_connections()), (1, 1));
            }
        }
        // Both wait, and each gets the place in its turn.
        let tasks: Vec<_> = (0..10)
            .map(|number| {
                let (client, uri) = (client.clone(), uris[number % 2].clone());
                task::spawn(async move { client.get(&uri).send().await?.text().await })
            })
            .collect();
        for (number, task) in tasks.into_iter().enumerate() {
            assert_eq!(task.await??, ["/1", "/2"][number % 2]);
        }
        Ok(())
    });
}

#[test]
fn an_origin_with_many_requests_keeps_no_other_waiting() {
    let (one, other) = (Served::start(slow), Served::start(slow));
    let (one, other) = (one.uri("/1"), other.uri("/2"));
    run(async move {
        let client = client(|limits| limits.connections_max = 1);
        let order = Rc::new(RefCell::new(Vec::new()));
        let mut tasks = Vec::new();
        for number in 0..12 {
            let (client, order) = (client.clone(), order.clone());
            // One request of another origin waits among those of the first.
            let uri = if number == 3 { &other } else { &one }.clone();
            tasks.push(task::spawn(async move {
                client.get(&uri).send().await?.text().await?;
                order.borrow_mut().push(number);
                Ok::<_, ClientError>(())
            }));
        }
        for task in tasks {
            task.await??;
        }
        assert_eq!(*order.borrow(), (0..12).collect::<Vec<_>>());
        Ok(())
    });
}

#[test]
fn a_server_that_ends_takes_its_idle_connections_with_it() {
    let server = Served::start(slow);
    let uri = server.uri("/1");
    run(async move {
        let client = Client::new();
        assert_eq!(client.get(&uri).send().await?.text().await?, "/1");
        assert_eq!(client.idle_connections(), 1);
        drop(server);
        while client.connections() > 0 {
            task::sleep(Duration::from_millis(5)).await;
        }
        let error = client.get(&uri).send().await.expect_err("the server is gone");
        assert!(error.is_connect(), "{error}");
        Ok(())
    });
}

#[test]
fn an_idle_connection_has_a_deadline() {
    let server = Served::start(slow);
    let uri = server.uri("/1");
    run(async move {
        let client = client(|limits| limits.idle_timeout = Duration::from_millis(20));
        assert_eq!(client.get(&uri).send().await?.text().await?, "/1");
        while client.connections() > 0 {
            task::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(client.get(&uri).send().await?.text().await?, "/1");
        Ok(())
    });
}
