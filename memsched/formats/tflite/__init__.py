"""TFLite files: read, described, rewritten, written."""
