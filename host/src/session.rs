//! Sessions: a transcript on disk.
