//! TLS that begins in the middle of a connection, and a codec that is chosen when the handshake is complete.

use tidegate::framing::{LengthField, Lines};
use tidegate::{Channel, ChannelError, Context, Event, Handler, Outcome, Over, Slice};
use tidegate_testkit::Embedded;
use tidegate_tls::{Provider, ServerConfig, Tls};

use crate::support::{NAME, configurations, usual};

/// Lines in the clear until STARTTLS; then the same over TLS.
struct Plain(ServerConfig);

impl Handler<Lines> for Plain {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Lines>) -> Outcome<Lines> {
        if &*line != b"STARTTLS" {
            return cx.send("in the clear".into()).into();
        }
        if let Err(error) = cx.send("go ahead".into()) {
            return Outcome::fail(error);
        }
        let tls = self.0.accept();
        Outcome::switch(move |lines| (Over::new(tls, lines), Secret))
    }
}

struct Secret;

impl Handler<Over<Tls, Lines>> for Secret {
    type Post = ();

    fn message(&mut self, _: Slice, cx: &mut Context<'_, Over<Tls, Lines>>) -> Outcome<Over<Tls, Lines>> {
        cx.send("over TLS".into()).into()
    }
}

/// Carries bytes until none are left.
fn exchange<P: Send, Q: Send>(server: &mut Embedded<P>, client: &mut Embedded<Q>) {
    loop {
        let (to_client, to_server) = (server.take_written(), client.take_written());
        if to_client.is_empty() && to_server.is_empty() {
            return;
        }
        client.receive(&to_client);
        server.receive(&to_server);
    }
}

#[test]
fn tls_begins_in_the_middle_of_a_connection_with_bytes_that_were_read_already() {
    let (server_config, client_config) = usual();
    let mut client = Embedded::serving(Lines::new(), async move |mut channel: Channel<Lines>| {
        channel.send("STARTTLS".into())?;
        assert_eq!(channel.recv().await?.as_deref(), Some(&b"go ahead"[..]));
        let tls = client_config.connect(NAME).unwrap();
        let mut channel = channel.switch(|lines| Over::new(tls, lines))?;
        channel.send("secret".into())?;
        assert_eq!(channel.recv().await?.as_deref(), Some(&b"over TLS"[..]));
        channel.close().await
    });
    let mut server = Embedded::new(Lines::new(), Plain(server_config.clone()));
    exchange(&mut server, &mut client);
    assert!(client.is_write_closed() && server.is_write_closed());

    // A client that does not wait: the hello follows the command at once, in one piece, at every split.
    let mut raw = Embedded::serving(Over::new(usual().1.connect(NAME).unwrap(), Lines::new()), silent);
    let hello = raw.take_written();
    let wire = [&b"hello\nSTARTTLS\n"[..], &hello].concat();
    for split in 0..wire.len() {
        let mut server = Embedded::new(Lines::new(), Plain(server_config.clone()));
        server.receive(&wire[..split]);
        server.receive(&wire[split..]);
        let written = server.take_written();
        let answer = written.strip_prefix(b"in the clear\ngo ahead\n").expect("both are in the clear");
        assert_eq!(answer[..3], [22, 3, 3], "a ServerHello, split at {split}");
    }
}

async fn silent<C: tidegate::codec::Pipeline>(mut channel: Channel<C>) -> Result<(), ChannelError> {
    channel.recv().await.map(drop)
}

/// Chooses between lines and frames by the protocol that the handshake has agreed on.
struct ByProtocol;

impl Handler<Over<Tls, Lines>> for ByProtocol {
    type Post = ();

    fn message(&mut self, line: Slice, cx: &mut Context<'_, Over<Tls, Lines>>) -> Outcome<Over<Tls, Lines>> {
        cx.send(line.into()).into()
    }

    fn event(&mut self, event: Event<()>, cx: &mut Context<'_, Over<Tls, Lines>>) -> Outcome<Over<Tls, Lines>> {
        match event {
            Event::Established if cx.codec().filter().alpn() == Some(b"frames") => {
                Outcome::switch(|over: Over<Tls, Lines>| (over.map(|_| LengthField::new(2)), Frames))
            }
            event => event.by_default(cx),
        }
    }
}

struct Frames;

impl Handler<Over<Tls, LengthField>> for Frames {
    type Post = ();

    fn message(
        &mut self,
        frame: Slice,
        cx: &mut Context<'_, Over<Tls, LengthField>>,
    ) -> Outcome<Over<Tls, LengthField>> {
        cx.send(frame.into()).into()
    }
}

#[test]
fn the_handshake_chooses_the_codec() {
    for (protocol, request) in [("lines", &b"ebb\n"[..]), ("frames", b"\0\x03e\nb")] {
        for piece in [1, usize::MAX] {
            let (server, client) = configurations(
                &Provider::ring(),
                |server| server.alpn(["frames", "lines"]),
                |client| client.alpn([protocol]),
            );
            let mut server = Embedded::new(Over::new(server.accept(), Lines::new()), ByProtocol);
            let raw = Over::new(client.connect(NAME).unwrap(), tidegate::framing::Raw);
            let mut client = Embedded::serving(raw, async move |mut channel: Channel<Over<Tls, _>>| {
                channel.send(request.into())?;
                let mut received = Vec::new();
                while received.len() < request.len() {
                    received.extend_from_slice(&channel.recv().await?.expect("the server echoes"));
                }
                assert_eq!(received, request, "{protocol}");
                channel.close().await
            });
            loop {
                let (to_client, to_server) = (server.take_written(), client.take_written());
                if to_client.is_empty() && to_server.is_empty() {
                    break;
                }
                to_client.chunks(piece).for_each(|piece| client.receive(piece));
                to_server.chunks(piece).for_each(|piece| server.receive(piece));
            }
            assert!(client.is_write_closed(), "{protocol}");
        }
    }
}
