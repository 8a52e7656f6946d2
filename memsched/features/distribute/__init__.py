"""One network on several devices: which part of every op each of them computes."""
