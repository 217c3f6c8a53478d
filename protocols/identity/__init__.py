"""Identities of participants: certificates, enrolment, vouchers, sealing to a public key."""
