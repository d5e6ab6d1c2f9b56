//! The server with programs of other authors, and beside redis-server.
