//! Framings: the codecs that most protocols begin with.
