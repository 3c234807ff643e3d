"""Words for people that the agent and the monitor say alike: pure, loaded when first needed."""
