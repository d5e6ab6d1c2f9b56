//! A NATS broker, and a client that publishes, subscribes and asks.
//!
//! ```text
//! cargo run --example nats_server                      # checks itself, prints the results and exits
//! cargo run --example nats_server -- 127.0.0.1:4222    # serves until it is killed
//! ```

#![forbid(unsafe_code)]

use std::error::Error;
use std::time::Duration;

use tidegate::nats::{Broker, Client, ClientError, Handler, ServerCodec, Subscriber, SubscriberEvent};
use tidegate::{Backend, EventLoop, Server, task};

/// Answers each request with its payload in upper case, as one of a group of services.
async fn shout(client: Client, mut requests: Subscriber) -> Result<(), ClientError> {
    while let Some(event) = requests.recv().await {
        if let SubscriberEvent::Message(request) = event
            && let Some(reply) = request.reply
        {
            client.publish(reply, request.payload.to_ascii_uppercase())?;
        }
    }
    Ok(())
}

async fn visit(target: String) -> Result<(), Box<dyn Error>> {
    let client = Client::to(&target)?.name("visitor").start();
    let mut tides = client.subscribe("tides.*")?;
    client.publish("tides.brest", "ebb")?;
    loop {
        if let Some(SubscriberEvent::Message(message)) = tides.recv().await {
            println!("{}: {}", message.subject.escape_ascii(), message.payload.escape_ascii());
            break;
        }
    }
    assert_eq!(client.request("shout", "flow").await, Err(ClientError::NoResponders));
    let requests = client.subscribe_in_group("shout", "shouters")?;
    drop(task::spawn(shout(client.clone(), requests)));
    let answer = client.request("shout", "flow").await?;
    assert_eq!(answer.payload, "FLOW");
    println!("shout: {}", answer.payload.escape_ascii());
    client.drain().await?;
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let address = std::env::args().nth(1);
    let broker = Broker::default();
    let server = Server::bind(address.as_deref().unwrap_or("127.0.0.1:0"))?
        .start(move || (ServerCodec::default(), Handler::new(&broker)))?;
    println!("listening on {}", server.address());
    if address.is_some() {
        server.wait();
        return Ok(());
    }
    EventLoop::on(Backend::Auto)?.block_on(visit(server.address().to_string()))??;
    server.drain(Duration::from_secs(5));
    Ok(())
}
