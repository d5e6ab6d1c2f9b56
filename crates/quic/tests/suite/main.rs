//! QUIC between a server and a client of ours: the same scenarios on epoll, on io_uring and in the simulated network, then
//! faults by seed, hostile datagrams before the handshake and hostile frames after it, and the memory of idle
//! connections; restarts of servers.

mod after_handshake;
mod costs;
mod datagrams;
mod early;
mod ends;
mod faults;
mod handshakes;
mod hostile;
mod hostile_server;
mod listing;
mod memory;
mod moves;
#[cfg(feature = "qlog")]
mod qlog;
mod raw_client;
mod restarts;
mod scenarios;
mod stage;

use tidegate_testkit::allocations::CountingAllocator;

use self::stage::Stage;

/// It counts for each thread, so a test sees only its own thread's allocations.
#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// Creates one test of each scenario for each stage.
macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        mod epoll { $(#[test] fn $name() { super::Stage::epoll().run(super::scenarios::$name); })* }
        mod uring { $(#[test] fn $name() { super::Stage::uring().run(super::scenarios::$name); })* }
        mod network { $(#[test] fn $name() { super::Stage::network(1).run(super::scenarios::$name); })* }
    };
}

scenarios! {
    a_stream_is_echoed_by_a_handler,
    the_same_handler_serves_tcp,
    many_streams_are_echoed_at_once,
    more_streams_than_the_peer_allows_wait_for_their_turn,
    a_large_transfer_comes_back_whole,
    a_reader_that_does_not_read_stops_the_sender,
    both_sides_open_streams_of_both_directions,
    a_direction_without_a_service_is_refused,
    a_reset_reaches_the_peer_with_its_number,
    a_stop_without_an_error_leaves_the_other_direction_open,
    a_stop_with_a_number_ends_the_stream,
    a_peer_that_closes_ends_the_streams,
    a_dropped_connection_closes_behind_its_last_stream,
    a_drain_waits_for_streams_and_refuses_new_connections,
    a_drain_ends_at_its_deadline,
    too_many_connections_are_refused,
    pressure_makes_clients_prove_their_address,
    an_application_decides_on_clients,
    keys_are_updated,
    a_changed_address_is_a_migration,
    a_client_that_does_not_trust_the_server_fails,
    a_small_send_window_is_enough,
}
