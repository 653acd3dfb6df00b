"""Outward I/O: sockets, their pool, plain HTTP."""
