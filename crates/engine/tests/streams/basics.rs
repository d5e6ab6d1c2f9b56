//! Messages both ways, ends, resets, drains.

use tidegate_testkit::ToyMuxConfig;

use crate::support::{BOTH, ask, backends, lines, serve, with_session};

#[test]
fn streams_of_a_session_echo_side_by_side() {
    for backend in backends() {
        for by in BOTH {
            let config = ToyMuxConfig::default();
            let server = serve(backend, by, config);
            with_session(&server, backend, config, |session| async move {
                let mut channels: Vec<_> = (0..20).map(|_| session.open(lines()).expect("a stream")).collect();
                for round in 0..3 {
                    for (number, channel) in channels.iter_mut().enumerate() {
                        let line = format!("{round} on {number}");
                        assert_eq!(ask(channel, &line).await, line);
                    }
                }
                assert_eq!(session.streams(), Ok(20));
                for channel in channels {
                    channel.close().await.expect("all was in order");
                }
                assert_eq!(session.streams(), Ok(0));
            });
        }
    }
}

#[test]
fn a_megabyte_passes_through_small_windows() {
    for backend in backends() {
        for by in BOTH {
            let config = ToyMuxConfig { stream_window: 5_000, session_window: 7_000, streams_max: 10 };
            let server = serve(backend, by, config);
            with_session(&server, backend, config, |session| async move {
                let mut channel = session.open(lines()).expect("a stream");
                let line = "x".repeat(1 << 19);
                assert_eq!(ask(&mut channel, &line).await, line);
                assert_eq!(ask(&mut channel, &line).await, line);
            });
        }
    }
}
