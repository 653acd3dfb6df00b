"""upwire: WebSocket mode of the OpenAI Responses API for every HTTP client."""

__version__ = "0.1.0"
