"""Items, requests, transcripts and the plan of a turn. Pure."""
