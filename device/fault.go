package device

import (
	"errors"
	"fmt"

	"quire/kvtransfer/page"
)

// ErrDevice is in the chain of every error that is the device's own and no caller's doing: no memory, a kernel that failed, a device
// that is gone.
var ErrDevice = errors.New("the device failed")

// Fault is a page that did not carry the tag of the sequence that was about to read or write it: the ledger and the device's memory
// disagree about its owner. Devices that keep tags beside their pages return it, and nothing that the step computed may be used.
type Fault struct {
	Write  bool // else it was read
	Seq    int  // of the step's batch; 0 for Pool.Read and Pool.Write
	Index  int  // of the page among the sequence's
	Page   page.ID
	Found  Tag
	Wanted Tag
}

// Tag is who a page belongs to, as a device keeps it beside the page. The zero Tag is nobody's.
type Tag struct {
	Owner page.Owner
	Gen   page.Gen
}

// Error names the page and both owners.
func (f *Fault) Error() string {
	what := "read"
	if f.Write {
		what = "written"
	}
	return fmt.Sprintf("device: page %d is %s's, generation %d; %s as page %d of sequence %d by %s, generation %d",
		f.Page, f.Found.Owner, f.Found.Gen, what, f.Index, f.Seq, f.Wanted.Owner, f.Wanted.Gen)
}
