//! The routes on a simulated network: no port, no waiting, and each run of a seed is the same.

use std::error::Error;
use std::time::Duration;

use {{crate_name}}::notes::{NOTES_MAX, Note, Notes};
use {{crate_name}}::{NewNote, router};
use tidegate::http::{Client, Config, StatusCode};
use tidegate::{Address, Limits};
use tidegate_testkit::network::{FaultRates, Network, NetworkFault};
use tidegate_testkit::seeds;

/// Runs a client against the service, each on a host of its own.
fn talk<T, F>(seed: u64, faults: FaultRates, client: impl FnOnce(Client, Address) -> F) -> T
where
    F: Future<Output = T> + 'static,
    T: 'static,
{
    let network = Network::new(seed);
    network.set_faults(faults);
    let server = network.host("10.0.0.1").node();
    let connections = Config::new().connections(router(Notes::default()));
    let address = server
        .listen(80, Limits::default(), move |_| connections())
        .expect("the port is free");
    let task = network
        .host("10.0.0.2")
        .node()
        .spawn(client(Client::new(), address));
    network.run_task(Duration::from_secs(60), task)
}

#[test]
fn a_note_is_created_read_and_removed() {
    talk(1, FaultRates::default(), async |client, address| {
        let notes = format!("http://{address}/notes");
        let created = client
            .post(&notes)
            .json(&NewNote {
                text: "high water".into(),
            })
            .send()
            .await
            .unwrap();
        assert_eq!(created.status(), StatusCode::CREATED);
        let note: Note = created.json().await.unwrap();
        assert_eq!(
            note,
            Note {
                number: 1,
                text: "high water".into()
            }
        );
        let read: Note = client
            .get(format!("{notes}/1"))
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        assert_eq!(read, note);
        let removed = client.delete(format!("{notes}/1")).send().await.unwrap();
        assert_eq!(removed.status(), StatusCode::NO_CONTENT);
        let gone = client.get(format!("{notes}/1")).send().await.unwrap();
        assert_eq!(gone.status(), StatusCode::NOT_FOUND);
    });
}

#[test]
fn a_body_that_is_no_note_is_refused() {
    talk(1, FaultRates::default(), async |client, address| {
        let notes = format!("http://{address}/notes");
        let refused = client
            .post(&notes)
            .header("Content-Type", "application/json")
            .body("{")
            .send()
            .await
            .unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        let refused = client.get(format!("{notes}/one")).send().await.unwrap();
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
    });
}

/// A note that was confirmed is there, whatever the network does.
#[test]
fn a_confirmed_note_is_not_lost_when_connections_break() {
    let mut confirmed = 0;
    for seed in seeds(20) {
        let faults = FaultRates::benign().with(NetworkFault::Reset, 50);
        confirmed += talk(seed, faults, async |client, address| {
            let notes = format!("http://{address}/notes");
            let mut confirmed = 0;
            for text in ["ebb", "flood", "slack"] {
                if let Ok(note) = add(&client, &notes, text).await {
                    let read = async || -> Result<Note, Box<dyn Error>> {
                        Ok(client
                            .get(format!("{notes}/{}", note.number))
                            .send()
                            .await?
                            .json()
                            .await?)
                    };
                    // A broken connection is no answer, so the client asks again.
                    let stored = loop {
                        if let Ok(stored) = read().await {
                            break stored;
                        }
                    };
                    assert_eq!(stored, note);
                    confirmed += 1;
                }
            }
            confirmed
        });
    }
    assert!(confirmed > 0, "some notes are confirmed");
}

async fn add(client: &Client, notes: &str, text: &str) -> Result<Note, Box<dyn Error>> {
    Ok(client
        .post(notes)
        .json(&NewNote { text: text.into() })
        .send()
        .await?
        .json()
        .await?)
}

#[test]
fn the_number_of_notes_is_bounded() {
    let notes = Notes::default();
    assert!((0..NOTES_MAX).all(|number| notes.add(number.to_string()).is_some()));
    assert_eq!(notes.add("one more".into()), None);
    assert!(notes.remove(1) && notes.add("in its place".into()).is_some());
}
