"""What came out of a run: the run file's schema, its store, and imports from other formats."""
