"""What the gateway tells about itself: statistics, liveness, readiness."""

from gateway.admin.routes import PATHS, admin_routes

__all__ = ["PATHS", "admin_routes"]
