package kvtransfer

// The gate's checks of identity: this hand-off, this attempt, this claim, this tenant, made and read by the same model.

func checkHandoff(e Evidence) Error {
	if e.Manifest.Key.ID != e.Reservation.Key.ID {
		return Errorf(HandoffIdentity, "hand-off: reserved %s, manifest %s", e.Reservation.Key.ID, e.Manifest.Key.ID)
	}
	return Error{}
}

func checkAttempt(e Evidence) Error {
	if e.Manifest.Key.Attempt != e.Reservation.Key.Attempt {
		return Errorf(HandoffIdentity, "attempt: reserved %d, manifest %d", e.Reservation.Key.Attempt, e.Manifest.Key.Attempt)
	}
	return Error{}
}

func checkClaim(e Evidence) Error {
	if e.Manifest.Claim != e.Claim.Claim {
		return Errorf(HandoffIdentity, "claim: bound %s, manifest %s", e.Claim.Claim, e.Manifest.Claim)
	}
	return Error{}
}

func checkClaimReservation(e Evidence) Error {
	if e.Claim.Reservation != e.Hash {
		return Errorf(HandoffIdentity, "reservation: hash %x, claim %x", e.Hash[:8], e.Claim.Reservation[:8])
	}
	return Error{}
}

func checkManifestReservation(e Evidence) Error {
	if e.Manifest.Reservation != e.Hash {
		return Errorf(HandoffIdentity, "reservation: hash %x, manifest %x", e.Hash[:8], e.Manifest.Reservation[:8])
	}
	return Error{}
}

func checkTenant(e Evidence) Error {
	if e.Manifest.Tenant != e.Reservation.Tenant {
		return Errorf(HandoffIdentity, "tenant: reserved %q, manifest %q", e.Reservation.Tenant, e.Manifest.Tenant)
	}
	return Error{}
}

// checkSender: who signed the manifest is the life of the process that signed the claim.
func checkSender(e Evidence) Error {
	if e.Sender != e.Prefill {
		return Errorf(HandoffIdentity, "sender: claimed by %s, manifest by %s", e.Prefill, e.Sender)
	}
	return Error{}
}

func checkModel(e Evidence) Error {
	return checkFingerprint("model", e.Reservation.Fingerprints.Model, e.Engine.Model)
}

func checkLayout(e Evidence) Error {
	return checkFingerprint("layout", e.Reservation.Fingerprints.Layout, e.Engine.Layout)
}

func checkCompute(e Evidence) Error {
	return checkFingerprint("compute", e.Reservation.Fingerprints.Compute, e.Engine.Compute)
}

func checkFingerprint(what string, reserved, engine [32]byte) Error {
	if reserved != engine {
		return Errorf(HandoffIdentity, "%s fingerprint: reserved %x, engine %x", what, reserved[:8], engine[:8])
	}
	return Error{}
}

func checkFrameIdentity(e Evidence) Error {
	for _, f := range e.Frames {
		if f.Header.Key != e.Reservation.Key || f.Header.Claim != e.Claim.Claim {
			return Errorf(HandoffIdentity, "frame %d: is of %s claim %s", f.Header.Index, f.Header.Key, f.Header.Claim)
		}
	}
	return Error{}
}
