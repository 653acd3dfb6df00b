"""Wire formats: JSON slices, frames, events, SSE. Pure."""
