//! Tests of the public interface.
//!
//! # Hostile input
//!
//! The tests of `tidegate-quic` have that of QUIC, and `http3.rs` of `tidegate-http` has some of these on whole connections.
//!
//! | input | test |
//! |---|---|
//! | HEADERS and trailers that expand, or have too many fields | `attacks::references_that_expand_are_cut_off`, `trailers_that_expand_reset_their_stream`, `heads_have_a_number_of_fields_and_a_size` |
//! | literals of 2^62 bytes, unknown indices | `messages::a_section_that_cannot_be_decoded_ends_the_connection` |
//! | critical streams that are closed, or opened again | `connections::critical_streams_are_opened_once_and_never_closed` |
//! | stream types in pieces | `connections::types_of_streams_may_come_in_pieces` |
//! | SETTINGS twice, huge, with the numbers of HTTP/2 | `connections::settings_come_first_and_once`, `attacks::settings_have_a_bound`, and in `settings.rs` |
//! | reserved frames and streams | `attacks::reserved_frames_of_a_stream_have_a_bound`, `connections::unknown_streams_are_discarded_and_then_stopped` |
//! | `Connection`, `Upgrade`, `TE`; pseudo-fields late, doubled, unknown | `messages::malformed_messages_reset_their_stream_alone` |
//! | rapid resets | `attacks::rapid_resets_are_abuse_and_late_ones_are_not`; STOP_SENDING at once: in `tidegate-http` |
//! | push | `connections::nothing_is_pushed` |
//! | requests behind GOAWAY | `drain::requests_below_the_last_goaway_are_served_and_later_ones_are_rejected` |
//! | GOAWAY that grows | `connections::the_peers_goaway_never_grows` |
//! | a body that ends before its length; through a gateway | `messages::a_body_has_its_declared_length`; in `smuggling_http3.rs` of `tidegate-http-proxy` |
//! | references to entries that there are not, wrong insert counts, instructions beyond the table | `table_decoder/tests.rs` |
//! | acknowledgments of nothing, a peer that acknowledges nothing | `table_encoder/tests.rs`, `tables::wrong_instructions_end_the_connection` |
//! | streams that wait for entries that never come | `tables::streams_that_wait_have_a_bound`, `a_stream_that_waits_may_be_reset`, `bytes_that_wait_have_a_bound` |
//! | acknowledgments that the peer does not read | `tables::acknowledgments_that_the_peer_does_not_read_have_a_bound` |
//! | one reference to a large entry, repeated | `tables::references_that_expand_are_refused_as_large_heads` |
//! | an encoder stream without end | `tables::insertions_without_requests_are_abuse` |
//! | a POST that is replayed as early data | `a_replayed_post_runs_no_function` of `tidegate-http` |

mod attacks;
mod connections;
mod datagrams;
mod drain;
mod early;
mod frames;
mod memory_quic;
mod messages;
mod round_trips;
mod support;
mod tables;
mod vectors;
mod webtransport;
