"""What happens in the organization, read as a stream or sent to webhooks."""
