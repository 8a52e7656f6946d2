"""How the learned stage scheduler is trained: random graphs, exact labels, the policy and its policy gradient."""
