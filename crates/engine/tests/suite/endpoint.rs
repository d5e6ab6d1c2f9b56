//! Datagrams: the guarantees of endpoints and of channels for tasks, on each driver and in the simulated network.

mod groups;
mod scenarios;
mod session_memory;
mod sessions;
mod simulated;
mod stage;
mod unix;

use self::stage::Stage;

/// Creates one test of each scenario for each stage.
macro_rules! scenarios {
    ($($name:ident),* $(,)?) => {
        mod epoll { $(#[test] fn $name() { super::Stage::epoll().run(super::scenarios::$name); })* }
        mod uring { $(#[test] fn $name() { super::Stage::uring().run(super::scenarios::$name); })* }
        mod network { $(#[test] fn $name() { super::Stage::network(1).run(super::scenarios::$name); })* }
    };
}

scenarios! {
    each_datagram_is_echoed_to_its_source,
    a_batch_is_followed_by_one_call_for_datagrams_to_send,
    an_endpoint_is_called_at_its_time,
    a_port_without_a_socket_is_reported_to_the_endpoint_that_goes_on,
    a_full_list_drops_its_oldest_datagrams_and_counts_them,
    a_run_arrives_as_single_datagrams,
    a_panic_costs_the_protocols_state_and_not_its_socket,
    a_panic_without_a_maker_closes_the_socket,
    a_drain_closes_an_endpoint_once_it_is_done,
    a_drain_ends_an_endpoint_at_its_deadline,
    a_task_that_reads_too_slowly_loses_the_oldest_datagrams,
    a_dropped_channel_frees_its_port,
    payloads_that_a_task_keeps_stay_as_they_are,
}

/// Creates one test of each scenario of Unix sockets for each driver.
macro_rules! unix_scenarios {
    ($($name:ident),* $(,)?) => {
        mod unix_epoll { $(#[test] fn $name() { super::Stage::epoll().run(super::unix::$name); })* }
        mod unix_uring { $(#[test] fn $name() { super::Stage::uring().run(super::unix::$name); })* }
    };
}

unix_scenarios! {
    a_unix_endpoint_echoes_to_its_source,
    a_task_passes_a_descriptor_and_learns_the_process,
    a_channel_knows_the_process_at_the_other_end,
    descriptors_above_the_limit_are_closed_and_the_datagram_counts_as_truncated,
    a_full_unix_socket_loses_the_datagrams_to_it_alone,
    a_stream_passes_descriptors_with_its_bytes,
    a_stream_keeps_as_many_descriptors_as_it_asks_for,
    a_stream_with_credentials_keeps_its_descriptors,
    bytes_behind_descriptors_come_once_a_stream_keeps_some,
    descriptors_do_not_overtake_messages,
    a_handler_gets_and_passes_descriptors,
}

/// Creates one test of each scenario of Unix datagrams for the simulated network.
macro_rules! unix_network_scenarios {
    ($($name:ident),* $(,)?) => {
        mod unix_network { $(#[test] fn $name() { super::Stage::network(1).run(super::unix::$name); })* }
    };
}

unix_network_scenarios! {
    a_unix_endpoint_echoes_to_its_source,
    descriptors_above_the_limit_are_closed_and_the_datagram_counts_as_truncated,
    a_full_unix_socket_loses_the_datagrams_to_it_alone,
}

/// Creates one test of each scenario of multicast groups for each driver.
macro_rules! group_scenarios {
    ($($name:ident),* $(,)?) => {
        mod groups_epoll { $(#[test] fn $name() { super::Stage::epoll().run(super::groups::$name); })* }
        mod groups_uring { $(#[test] fn $name() { super::Stage::uring().run(super::groups::$name); })* }
    };
}

group_scenarios! {
    an_endpoint_joins_and_leaves_a_group_while_it_runs,
    a_task_joins_a_group_from_one_source,
}
