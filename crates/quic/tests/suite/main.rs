//! QUIC between a server and a client of ours: the same scenarios on epoll, on io_uring and in the simulated network, then
//! faults by seed, hostile datagrams before the handshake and hostile frames after it, and the memory of idle
//! connections; restarts of servers.
//!
//! # Hostile input
//!
//! | input | test |
//! |---|---|
//! | transport parameters: malformed, doubled, out of range, `min_ack_delay` above the round trip | `handshakes::transport_parameters_are_checked` |
//! | the same of a server, to a client; ids that are not those of the packets | `hostile_server::transport_parameters_of_a_server_are_checked`, `a_server_whose_parameters_name_other_ids_is_refused` |
//! | a claimed source id that is not that of the packets | `handshakes::a_source_connection_id_that_is_not_that_of_the_packets_is_refused` |
//! | unknown versions in short datagrams | `hostile::an_unknown_version_is_answered_only_if_the_datagram_is_long` |
//! | Initials for 65,536 unknown ids; many in one datagram; a token that leaves no room | `handshakes::initials_for_unknown_ids_leave_nothing`, `many_initials_in_one_datagram_are_one_client`, `a_token_that_leaves_no_room_is_dropped_and_a_long_one_is_not` |
//! | ids that collide | none: quinn-proto has tables with random keys for the ids and addresses of peers |
//! | ClientHello in frames of one byte; CRYPTO without end | `handshakes::a_client_hello_in_frames_of_one_byte_out_of_order_is_understood`, `handshake_bytes_without_end_have_bounded_memory` |
//! | a server name without a certificate | `handshakes::a_refused_server_name_is_an_alert_and_leaves_no_memory` |
//! | a Retry loop | `hostile_server::a_client_follows_one_retry_and_no_further_one` |
//! | gaps in a stream; small frames in order with a slow reader | `after_handshake::gaps_in_a_stream_have_bounded_memory`, `small_frames_in_order_pass_a_slow_reader` |
//! | empty datagrams | `after_handshake::empty_datagrams_in_a_flood_have_bounded_memory` |
//! | NEW_CONNECTION_ID, RETIRE_CONNECTION_ID, PATH_CHALLENGE, PING, MAX_DATA, STOP_SENDING, key updates in floods | `after_handshake::floods_of_control_frames_have_bounded_memory`, `retired_connection_ids_in_a_flood_have_bounded_memory`, `updates_of_keys_in_a_flood_have_bounded_memory` |
//! | acknowledgements of packets that were not sent, or did not come | `after_handshake::frames_that_a_server_must_not_get_end_the_connection`, `acknowledgements_of_packets_that_did_not_come_are_noticed` |
//! | probes from many addresses; migration before validation | `after_handshake::probes_from_many_addresses_leave_the_connection_at_its_own`, `a_new_address_gets_little_until_it_is_validated` |
//! | HANDSHAKE_DONE too early, to a client; forged answers | `hostile_server::frames_of_a_server_before_their_time_end_the_connection_or_change_nothing`, `forged_answers_neither_end_nor_make_a_connection` |
//! | truncated types and frames, frames of the other role | `after_handshake::frames_that_a_server_must_not_get_end_the_connection` |
//! | forged stateless resets; two endpoints that reset each other | `after_handshake::forged_resets_and_broken_packets_change_nothing`, `handshakes::two_endpoints_do_not_reset_each_other_without_end` |
//! | RESET_STREAM with another final size | `after_handshake::another_final_size_ends_the_connection` |
//! | a copy of early data | `early::a_copy_of_early_data_opens_no_stream` |

mod after_handshake;
mod costs;
mod datagram_memory;
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
mod payloads;
mod protected_packets;
#[cfg(feature = "qlog")]
mod qlog;
mod raw_client;
mod raw_server;
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
