//! The file as a whole: each mistake has its place, and all are found in one run.
