//! An authoritative DNS server of one zone file, over UDP and TCP.
//!
//! ```text
//! cargo run --release --example zone                              # checks itself, prints the results and exits
//! cargo run --release --example zone -- 127.0.0.1:5353 FILE       # serves until it is killed
//! dig @127.0.0.1 -p 5353 www.tides.example
//! ```
//!
//! Datagrams and TCP connections are on the same event loops, within the limits of `ServerLimits`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::UdpSocket;
use std::sync::Arc;
use std::time::Duration;

use tidegate::dns::server::DnsServer;
use tidegate::dns::{
    CacheConfig, Header, MessageView, MessageWriter, NameServer, Question, RecordType, ResolverConfig, SharedCache,
    StubResolver, Zone,
};
use tidegate::{Backend, Client, EventLoop, ServerHandle, StartError};

const EXAMPLE: &str = "\
$ORIGIN tides.example.
$TTL 300
@    SOA ns root 2026112701 7200 3600 1209600 60
     NS  ns
ns   A   192.0.2.53
www  A   192.0.2.80
     AAAA 2001:db8::80
";

fn serve(address: &str, zone: Zone) -> Result<ServerHandle, StartError> {
    let zone = Arc::new(zone);
    DnsServer::bind(address)?.start(move |_loop| zone.clone())
}

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    if let Some(address) = arguments.next() {
        let path = arguments.next().ok_or("usage: zone ADDRESS FILE")?;
        let zone = Zone::parse(&std::fs::read_to_string(&path)?, None).map_err(|error| format!("{path}: {error}"))?;
        println!("{} records of {}", zone.record_count(), zone.origin());
        let server = serve(&address, zone)?;
        println!("listening on {}", server.address());
        server.wait();
        return Ok(());
    }
    let server = serve("127.0.0.1:0", Zone::parse(EXAMPLE, None)?)?;
    let address = server.address().ip().ok_or("the address is an IP address")?;

    let question = Question::new("www.tides.example".parse()?, RecordType::A);
    let query = MessageWriter::new(Header::query(4_711)).question(&question)?.finish();
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.send_to(&query, address)?;
    let mut reply = [0; 512];
    let length = socket.recv(&mut reply)?;
    let reply = MessageView::parse(&reply[..length])?;
    for record in reply.answers() {
        println!("over UDP: {}", record.to_record());
    }

    let addresses = EventLoop::on(Backend::Auto)?.block_on(async move {
        let cache = SharedCache::new(CacheConfig::default());
        let server = NameServer::over_streams(Client::at(address));
        let resolver = StubResolver::new(vec![server], ResolverConfig::default(), cache);
        resolver.addresses("www.tides.example").await
    })??;
    println!("over TCP: {addresses:?}");
    server.drain(Duration::from_secs(1));
    Ok(())
}
