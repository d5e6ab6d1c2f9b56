//! Rooms on a simulated network: no port, no waiting, and each run of a seed is the same.

use std::time::Duration;

use {{crate_name}}::{rooms, router};
use tidegate::http::client::WebSocketChannel;
use tidegate::http::{Client, Config, StatusCode};
use tidegate::websocket::Message;
use tidegate::{Address, Limits};
use tidegate_testkit::network::Network;

/// Runs a client against the server, each on a host of its own.
fn talk<F: Future<Output = ()> + 'static>(client: impl FnOnce(Client, Address) -> F) {
    let network = Network::new(1);
    let server = network.host("10.0.0.1").node();
    let connections = Config::new().connections(router(rooms()));
    let address = server
        .listen(80, Limits::default(), move |_| connections())
        .expect("the port is free");
    let task = network
        .host("10.0.0.2")
        .node()
        .spawn(client(Client::new(), address));
    network.run_task(Duration::from_secs(60), task);
}

/// The next message of a subscriber.
async fn text(subscriber: &mut WebSocketChannel) -> String {
    match subscriber.recv().await.unwrap() {
        Some(Message::Text(text)) => text.as_str().to_owned(),
        other => panic!("{other:?} is no text"),
    }
}

#[test]
fn a_message_reaches_each_subscriber_of_its_room_and_no_other() {
    talk(async |client, address| {
        let mut tides = Vec::new();
        for number in 0..3 {
            tides.push(
                client
                    .websocket(format!("ws://{address}/rooms/tides?token=sub-{number}"))
                    .open()
                    .await
                    .unwrap(),
            );
        }
        let mut winds = client
            .websocket(format!("ws://{address}/rooms/winds?token=sub-4"))
            .open()
            .await
            .unwrap();
        for (room, text, members) in [("tides", "high water", "3"), ("winds", "gale", "1")] {
            let post = client
                .post(format!("http://{address}/rooms/{room}"))
                .bearer_auth("pub-1")
                .body(text);
            assert_eq!(post.send().await.unwrap().text().await.unwrap(), members);
        }
        for subscriber in &mut tides {
            assert_eq!(text(subscriber).await, "high water");
        }
        assert_eq!(text(&mut winds).await, "gale");
    });
}

/// A room keeps its last message while it has a subscriber.
#[test]
fn a_late_subscriber_receives_the_last_message() {
    talk(async |client, address| {
        let room = format!("ws://{address}/rooms/tides");
        let mut early = client
            .websocket(format!("{room}?token=sub-1"))
            .open()
            .await
            .unwrap();
        for message in ["ebb", "flood"] {
            let post = client
                .post(format!("http://{address}/rooms/tides"))
                .bearer_auth("pub-1")
                .body(message);
            assert_eq!(post.send().await.unwrap().status(), StatusCode::OK);
            assert_eq!(text(&mut early).await, message);
        }
        let mut late = client
            .websocket(format!("{room}?token=sub-2"))
            .open()
            .await
            .unwrap();
        assert_eq!(text(&mut late).await, "flood");
    });
}

#[test]
fn requests_without_their_token_are_refused() {
    talk(async |client, address| {
        for query in ["", "?token=", "?token=pub-1"] {
            let uri = format!("ws://{address}/rooms/tides{query}");
            assert!(client.websocket(&uri).open().await.is_err(), "{query}");
        }
        let post = client
            .post(format!("http://{address}/rooms/tides"))
            .bearer_auth("sub-1")
            .body("ebb");
        assert_eq!(
            post.send().await.unwrap().status(),
            StatusCode::UNAUTHORIZED
        );
    });
}
