//! The test application.
