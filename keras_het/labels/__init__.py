"""Label errors, annotators and verified labels."""
