//! docs/kubernetes.md: what it says to type works.
