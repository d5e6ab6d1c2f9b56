//! An authoritative DNS server of one zone file, over UDP and TCP.
//!
//! ```text
//! cargo run --release --example zone                              # checks itself, prints the results and exits
//! cargo run --release --example zone -- 127.0.0.1:5353 FILE       # serves until it is killed
//! dig @127.0.0.1 -p 5353 www.tides.example
//! ```
//!
//! TCP connections are on event loops. Datagrams are answered by a thread with a socket of the standard library, within
//! the limits of a `RateLimiter`.

#![forbid(unsafe_code)]

use std::error::Error;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate::dns::server::{
    RateDecision, RateLimiter, RateLimits, ResponseKind, StreamHandler, datagram_bytes_max, respond,
};
use tidegate::dns::{
    CacheConfig, EncodedMessage, Header, MessageView, MessageWriter, Question, RecordType, ResolverConfig,
    ResponseCode, ServerCodec, SharedCache, StreamResolver, Zone, format_error,
};
use tidegate::{Backend, Client, EventLoop, Server, ServerHandle};

const EXAMPLE: &str = "\
$ORIGIN tides.example.
$TTL 300
@    SOA ns root 2026112701 7200 3600 1209600 60
     NS  ns
ns   A   192.0.2.53
www  A   192.0.2.80
     AAAA 2001:db8::80
";

/// Answers the datagrams of a socket, for ever.
fn answer_datagrams(socket: &UdpSocket, zone: &Zone) {
    let (mut limiter, mut buffer) = (RateLimiter::new(RateLimits::default()), [0; 4_096]);
    loop {
        let Ok((length, peer)) = socket.recv_from(&mut buffer) else { continue };
        if let Some(reply) = answer_datagram(&buffer[..length], peer, zone, &mut limiter) {
            // A reply that the kernel does not take is lost, as datagrams are.
            let _ = socket.send_to(&reply, peer);
        }
    }
}

fn answer_datagram(
    datagram: &[u8],
    peer: SocketAddr,
    zone: &Zone,
    limiter: &mut RateLimiter,
) -> Option<EncodedMessage> {
    let header = MessageView::header_of(datagram).filter(|header| !header.is_response)?;
    let query = MessageView::parse(datagram);
    let reply = match &query {
        Ok(query) => respond(zone, query, Some(datagram_bytes_max(query))),
        Err(_) => format_error(&header),
    };
    let view = MessageView::parse(&reply).ok()?;
    let kind = match view.response_code() {
        ResponseCode::NOERROR if view.answers().next().is_some() => ResponseKind::Positive,
        ResponseCode::NOERROR | ResponseCode::NXDOMAIN => ResponseKind::Negative,
        _ => ResponseKind::Error,
    };
    match limiter.check(peer.ip(), kind, Instant::now()) {
        RateDecision::Send => Some(reply),
        RateDecision::Truncate => {
            let header = Header { is_truncated: true, ..header.response(ResponseCode::NOERROR) };
            let question = query.ok()?.question()?.to_question();
            MessageWriter::new(header).question(&question).ok().map(MessageWriter::finish)
        }
        RateDecision::Drop => None,
    }
}

fn serve(address: &str, zone: Zone) -> Result<ServerHandle, Box<dyn Error>> {
    let zone = Arc::new(zone);
    let of_streams = zone.clone();
    let server =
        Server::bind(address)?.start(move || (ServerCodec::default(), StreamHandler::new(of_streams.clone())))?;
    // The port of the TCP listener, so that both are at the same one.
    let socket = UdpSocket::bind(server.address().ip().ok_or("the address is an IP address")?)?;
    std::thread::spawn(move || answer_datagrams(&socket, &zone));
    Ok(server)
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
        let resolver = StreamResolver::new(vec![Client::at(address)], ResolverConfig::default(), cache);
        resolver.addresses("www.tides.example").await
    })??;
    println!("over TCP: {addresses:?}");
    server.drain(Duration::from_secs(1));
    Ok(())
}
