"""The speed claims, each a ratio of two things measured in one run. `make benchmark` runs all."""
