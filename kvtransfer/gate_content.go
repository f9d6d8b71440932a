package kvtransfer

// The gate's checks of content (every frame opened, is in the pages, and is one of those that prefill digested) and of time
// (lease alive, the same life of this process, every page in the generation that was promised).

func checkOpened(e Evidence) Error {
	for _, f := range e.Frames {
		if !f.Opened {
			return Errorf(HandoffContent, "frame %d: did not open", f.Header.Index)
		}
	}
	return Error{}
}

func checkCopied(e Evidence) Error {
	for _, f := range e.Frames {
		if !f.Copied {
			return Errorf(HandoffContent, "frame %d: is not in the pages", f.Header.Index)
		}
	}
	return Error{}
}

func checkFrameBytes(e Evidence) Error {
	for _, f := range e.Frames {
		if want := e.Shape.FrameBytes(f.Header); f.Bytes != want {
			return Errorf(HandoffContent, "frame %d: expected %d bytes, opened %d", f.Header.Index, want, f.Bytes)
		}
	}
	return Error{}
}

func checkDigest(e Evidence) Error {
	tags := make([][16]byte, len(e.Frames))
	for i, f := range e.Frames {
		tags[i] = f.Tag
	}
	if got := DigestTags(tags); got != e.Manifest.Digest {
		return Errorf(HandoffContent, "digest: manifest %x, received %x", e.Manifest.Digest[:8], got[:8])
	}
	return Error{}
}

func checkLease(e Evidence) Error {
	if err := e.Lease.Expired(e.Now); !err.IsZero() {
		return Errorf(HandoffTime, "%s", err.Detail)
	}
	return Error{}
}

func checkEpoch(e Evidence) Error {
	if e.Reservation.Decode != e.Decode {
		return Errorf(HandoffTime, "epoch: reserved by %s, judged by %s", e.Reservation.Decode, e.Decode)
	}
	return Error{}
}

func checkGenerations(e Evidence) Error {
	r := e.Reservation.Pages
	if len(r) != len(e.Pages) {
		return Errorf(HandoffTime, "page generations: reserved %d pages, the ledger has %d", len(r), len(e.Pages))
	}
	for i, s := range r {
		if s != e.Pages[i] {
			return Errorf(HandoffTime, "page generations: position %d: reserved page %d generation %d, the ledger has page %d generation %d",
				i, s.Page, s.Gen, e.Pages[i].Page, e.Pages[i].Gen)
		}
	}
	return Error{}
}
