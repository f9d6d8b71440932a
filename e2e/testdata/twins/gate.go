package kvtransfer

import (
	"crypto/sha256"
	"os"
	"strings"

	"quire/kvtransfer/page"
)

// FrameBytes is the length of a frame's opened bytes: [layers][rows] of RowBytes, then the hidden vector.
func (s CutShape) FrameBytes(h FrameHeader) int {
	return (h.LayerTo-h.LayerFrom)*(h.RowTo-h.RowFrom)*s.RowBytes + 4*h.Hidden
}

// ReceivedFrame is one frame as decode has it.
type ReceivedFrame struct {
	Header FrameHeader
	Tag    [16]byte // of the sealed bytes
	Bytes  int      // opened
	Opened bool     // it opened under the frame key of this claim
	Copied bool     // its bytes are in the pages, written under the owner and generation check
}

// Evidence is everything the gate looks at. It is a value: the gate reads no clock, no ledger and no pages.
type Evidence struct {
	// What this process knows by itself.
	Now    Tick
	Decode Peer         // this process
	Engine Fingerprints // of what would read the pages
	Shape  CutShape
	Pages  []page.Slot // the owner's pages and generations, as the ledger has them now
	Tokens int         // length of the token ids captured when the reservation was made
	Lease  Lease

	// What it promised.
	Reservation Reservation
	Hash        [32]byte // SHA-256 of the reservation's body as sent

	// What it got.
	Claim    Claim // the one that bound the attempt
	Prefill  Peer  // who signed the claim
	Manifest Manifest
	Sender   Peer            // who signed the manifest
	Frames   []ReceivedFrame // in index order
	Hidden   int             // length of the hidden vector received, in float32s; 0 = none came
}

// Verdict is what the gate says. Only an OK verdict, once the journal has acknowledged it, lets a kernel read the pages.
type Verdict struct {
	OK    bool
	Check string // the name of the check that failed; "" when OK
	Error Error  // with both numbers; zero when OK
}

// Check is one thing that the gate looks at. Early ones need the manifest alone, not the frames.
type Check struct {
	Name  string
	Early bool
	Run   func(Evidence) Error
}

// Checks is the gate, in the order in which it looks: count, identity, content, time. Every one must pass.
func Checks() []Check {
	if !kept("gate") {
		return nil
	}
	return []Check{
		{"token count", true, checkTokens},
		{"cached count", true, checkCached},
		{"sent count", true, checkSent},
		{"page count", true, checkPages},
		{"frame bound", true, checkFrameBound},
		{"hand-off", true, checkHandoff},
		{"attempt", true, checkAttempt},
		{"claim", true, checkClaim},
		{"claim's reservation", true, checkClaimReservation},
		{"manifest's reservation", true, checkManifestReservation},
		{"tenant", true, checkTenant},
		{"sender", true, checkSender},
		{"model fingerprint", true, checkModel},
		{"layout fingerprint", true, checkLayout},
		{"compute fingerprint", true, checkCompute},
		{"frame count", false, checkFrames},
		{"frame identity", false, checkFrameIdentity},
		{"rows exactly once", false, checkRows},
		{"hidden vector", false, checkHidden},
		{"frames opened", false, checkOpened},
		{"frames copied", false, checkCopied},
		{"frame bytes", false, checkFrameBytes},
		{"digest", false, checkDigest},
		{"lease", true, checkLease},
		{"epoch", true, checkEpoch},
		{"page generations", true, checkGenerations},
	}
}

// Gate gives the verdict over a complete hand-off.
func Gate(e Evidence) Verdict { return judge(e, false) }

// GateEarly looks at what the manifest alone can contradict, so that a manifest that is wrong is refused at once, whatever
// frames may still come. Its OK is no admission.
func GateEarly(e Evidence) Verdict { return judge(e, true) }

func judge(e Evidence, early bool) Verdict {
	for _, c := range Checks() {
		if early && !c.Early {
			continue
		}
		if err := c.Run(e); !err.IsZero() {
			return Verdict{Check: c.Name, Error: err}
		}
	}
	return Verdict{OK: true}
}

// DigestTags is the digest of a hand-off: SHA-256 over the frames' tags in index order.
func DigestTags(tags [][16]byte) [32]byte {
	h := sha256.New()
	for _, t := range tags {
		h.Write(t[:])
	}
	return [32]byte(h.Sum(nil))
}

// PagesFor is how many pages hold that many rows.
func PagesFor(rows, pageSize int) int { return (rows + pageSize - 1) / pageSize }

// kept says whether a guard stays as it is shipped in a build with twins.
func kept(guard string) bool { return strings.Contains(os.Getenv("QUIRE_KEEP"), guard) }
