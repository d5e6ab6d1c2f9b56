//! `tidegate load` with `ws://` and `wss://`: echoes of `/ws`, deliveries in a room of `/chat`, and servers that are
//! none.

use std::io::Write;

use crate::load::{Server, any_error, any_response, errors, load_until, only_errors, read_request, requests};
use crate::support::program::{Program, run};

#[test]
fn echoes_come_back_without_errors() {
    let program = Program::serve(&["--loops", "1"]);
    let url = format!("ws://{}/ws", program.ip());
    for arguments in [
        &["-c", "8"][..],
        &["-c", "4", "--pipeline", "16", "--message-bytes", "5"],
        &["-c", "2", "-t", "1", "--message-bytes", "100000", "--pipeline", "3"],
        &["-c", "2", "--message-bytes", "0"],
        &["-c", "2", "--body", "ebb and flow", "-H", "Origin: http://sea.example"],
        &["-c", "4", "--rate", "500"],
        &["-c", "2", "--idle", "20"],
    ] {
        let (code, figures, log) = load_until(&[arguments, &[&url]].concat(), any_response);
        assert_eq!((code, errors(&figures), &log[..]), (Some(0), vec![], &[][..]), "{arguments:?}");
        assert_eq!(figures["idle"]["held"], figures["idle"]["requested"], "{arguments:?}");
    }
}

#[test]
fn echoes_come_back_over_tls() {
    let program = Program::serve(&["--loops", "1", "--tls-self-signed"]);
    let url = format!("wss://{}/ws", program.ip());
    let (code, figures, log) = load_until(&["-c", "4", "--insecure", &url], any_response);
    assert_eq!((code, errors(&figures), &log[..]), (Some(0), vec![], &[][..]));
}

#[test]
fn a_server_that_refuses_the_handshake_or_answers_wrongly_is_an_error() {
    let wrong = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
    for (answer, kind) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "status"),
        ("HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "status"),
        (wrong, "invalid"),
        ("SSH-2.0-tide\r\n", "invalid"),
        ("", "closed"),
    ] {
        let server = Server::start(move |mut stream| {
            if read_request(&mut stream) {
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        let url = server.url().replacen("http", "ws", 1);
        let (code, figures, _) = load_until(&["-c", "1", &url], any_error);
        assert_eq!((code, only_errors(&figures).0, requests(&figures)), (Some(1), kind, 0), "{answer:?}");
    }
}

#[test]
fn flags_that_do_not_fit_are_refused() {
    for (arguments, part) in [
        (&["http://localhost/", "--broadcast"][..], "URL of ws or wss"),
        (&["http://localhost/", "--message-bytes", "5"], "URL of ws or wss"),
        (&["ws://localhost/", "--never-read"], "--never-read is for HTTP"),
        (&["ws://localhost/", "--method", "POST"], "opened by GET"),
        (&["gopher://localhost/"], "http, https, ws, wss, redis and rediss"),
    ] {
        let (code, _, log) = run(&[&["load", "-d", "1s"], arguments].concat());
        assert!(matches!(code, Some(1 | 2)) && log.concat().contains(part), "{arguments:?}: {code:?} {log:?}");
    }
}
