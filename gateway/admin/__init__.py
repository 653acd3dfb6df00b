"""What the gateway tells about itself: statistics, liveness, readiness."""
