"""Start, measure and end real ranks, on one machine or on hosts joined by links."""
