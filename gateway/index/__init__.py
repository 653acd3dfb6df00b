"""An index of stored conversations that several gateways share, so that each continues what another has begun.

``names`` and ``records`` are pure: what is asked for, and what is written. ``redis_server`` speaks with Redis or Valkey, within
bounds. ``shared`` is what turns use. Only digests and ids leave the process, under names and tags that are keyed per deployment.
"""
