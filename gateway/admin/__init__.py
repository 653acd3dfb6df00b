"""What the gateway tells about itself: statistics, metrics, what happens now, a page that shows it, liveness, readiness."""

from gateway.admin.feed import Feed
from gateway.admin.metrics import METRICS, Metrics
from gateway.admin.routes import PATHS, admin_routes

__all__ = ["METRICS", "PATHS", "Feed", "Metrics", "admin_routes"]
