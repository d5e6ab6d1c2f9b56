//! Dropping a driver with operations in flight: it releases all memory and descriptors.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use tidegate_buffer::Outbound;
use tidegate_sys::{Operation, SocketOptions};

use crate::driver::connect::busy_listener;
use crate::driver::harness::{Family, Harness, PATIENCE, any_port, pattern, reset};
use crate::driver::which::{Which, open_descriptors};

pub(crate) fn a_driver_dropped_with_operations_in_flight_leaks_nothing(driver: Which) {
    driver.alone("shutdown::a_driver_dropped_with_operations_in_flight_leaks_nothing", || {
        for moment in Moment::ALL {
            let descriptors = open_descriptors();
            let mut harness = Harness::on(driver);
            let pool = harness.pool.clone();
            let (mut peers, mut queues) = (Vec::new(), Vec::new());
            for index in 0..100 {
                let (token, peer) = harness.pair(if index % 2 == 0 { Family::Tcp } else { Family::Unix });
                harness.receive(token, index % 5 != 0);
                if index % 3 == 0 {
                    // A heavy socket; some of them receive and some do not.
                    (&peer).write_all(&pattern(100_000)).unwrap();
                }
                if index % 4 == 0 {
                    let mut queue = Outbound::new(&harness.pool);
                    queue.write(&pattern(1000));
                    queue.link_bytes(vec![7; 32 << 20].into());
                    queue.flush();
                    harness.send_until_blocked(token, &mut queue);
                    queues.push(queue);
                }
                match index % 20 {
                    7 => harness.submit(token, Operation::ShutdownWrite),
                    8 => reset(peer.try_clone().unwrap()),
                    9 => harness.receive(token, false),
                    10 => harness.start_close(token, index % 40 == 10),
                    _ => {}
                }
                peers.push(peer);
            }
            let (_, address) = harness.listen(&any_port());
            let backlog: Vec<_> = (0..10).map(|_| TcpStream::connect(address.ip().unwrap()).unwrap()).collect();
            let (busy, address) = busy_listener();
            let full: Vec<_> = (0..2).map(|_| TcpStream::connect_timeout(&address, PATIENCE).unwrap()).collect();
            for _ in 0..5 {
                let (token, options) = (harness.token(), SocketOptions::default());
                let address = address.into();
                harness.submit(token, Operation::Connect { address: &address, local: None, options: &options });
            }
            harness.driver.waker().wake();
            match moment {
                Moment::Queued => {}
                Moment::Armed => harness.run_until_idle(),
                Moment::Reported => drop(harness.first()),
                Moment::Paused => harness.pause_receives(true),
            }
            drop(harness);
            for mut peer in peers {
                let end = peer.read_to_end(&mut Vec::new());
                let gone = |kind| matches!(kind, ErrorKind::ConnectionReset | ErrorKind::NotConnected);
                assert!(end.as_ref().map_or_else(|error| gone(error.kind()), |_| true), "{end:?}");
            }
            drop((backlog, busy, full, queues));
            assert_eq!(pool.ledger().used(), 0, "{moment:?}");
            assert_eq!(open_descriptors(), descriptors, "{moment:?}");
        }
    });
}

/// When the driver is dropped.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// With operations that were not submitted to the kernel.
    Queued,
    /// With operations that the kernel has.
    Armed,
    /// In the middle of a turn.
    Reported,
    /// With receives paused.
    Paused,
}

impl Moment {
    const ALL: [Self; 4] = [Self::Queued, Self::Armed, Self::Reported, Self::Paused];
}
