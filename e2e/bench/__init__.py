"""How long things take, and what they cost the API server: measured on the test cluster, beside what cannot be beaten."""
