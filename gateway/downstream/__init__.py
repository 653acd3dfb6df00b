"""The client side: HTTP in, SSE or JSON out."""
