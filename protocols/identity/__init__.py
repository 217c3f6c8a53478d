"""Who a participant is: certificates, enrolment, vouchers, sealing to a public key."""
