"""What surrounds a method: who is away, who attacks and how the server defends itself, privacy, compression."""
