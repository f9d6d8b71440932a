// Package page is the page pool's ledger of owners, and the only way by which a kernel gets at pages.
//
// A pool has a fixed number of pages; a page has a fixed number of token slots of every layer. Each page has exactly one
// owner and one state at any time, and a generation that grows whenever it is taken for another owner.
package page

// ID is the index of a page in its pool.
type ID uint32

// Gen is a page's reuse counter. It is bumped whenever the page is taken for a new owner, and when it leaves quarantine.
type Gen uint64

// Owner is who a page belongs to: one attempt of one hand-off. The zero value is nobody.
type Owner struct {
	Handoff [16]byte
	Attempt uint32
}

// Slot is a page as its owner knows it.
type Slot struct {
	Page ID
	Gen  Gen
}

// State is what a page is being used for.
type State uint8

// The states of a page. Free -> Reserved -> Filling -> Owned (received) or Reserved -> Owned (computed here)
// -> Zeroing -> Free; Quarantined on the way out when the hand-off was refused.
const (
	Free State = iota
	Reserved
	Filling
	Owned
	Zeroing
	Quarantined
)

// Counts is how many pages are in each state. Invariant: they sum to Total.
type Counts struct {
	Total, Free, Reserved, Filling, Owned, Zeroing, Quarantined int
}

// View is the right to read rows [0, Rows) of the pages of one owner: what a kernel gets. Only a Ledger makes one, after the
// gate admitted the rows or after this process wrote them itself. The zero value is no right at all, and devices refuse it.
type View struct {
	pool     uint64
	owner    Owner
	slots    []Slot // never written after minting
	pageSize int
	rows     int
}

// Grant is the right to write rows [From, To) of the pages of one owner, once. Only a Ledger makes one; it stays valid until
// it is settled, and while it is not settled its pages cannot change hands.
type Grant struct {
	pool     uint64
	owner    Owner
	slots    []Slot
	pageSize int
	from, to int
	id       uint64
}

// Valid says whether a ledger made the view.
func (v View) Valid() bool { return v.pageSize > 0 && v.pool != 0 }

// Pool is the number of the pool that the view belongs to.
func (v View) Pool() uint64 { return v.pool }

// Owner is whose pages these are.
func (v View) Owner() Owner { return v.owner }

// Rows is how many rows may be read: [0, Rows).
func (v View) Rows() int { return v.rows }

// PageSize is the number of token slots of a page.
func (v View) PageSize() int { return v.pageSize }

// Pages is how many pages the owner has, readable or not.
func (v View) Pages() int { return len(v.slots) }

// Slot is the i-th page in order of position.
func (v View) Slot(i int) Slot { return v.slots[i] }

// Valid says whether a ledger made the grant.
func (g Grant) Valid() bool { return g.pageSize > 0 && g.pool != 0 }

// Pool is the number of the pool that the grant belongs to.
func (g Grant) Pool() uint64 { return g.pool }

// Owner is whose pages these are.
func (g Grant) Owner() Owner { return g.owner }

// From is the first row that may be written.
func (g Grant) From() int { return g.from }

// To is the row after the last one that may be written.
func (g Grant) To() int { return g.to }

// PageSize is the number of token slots of a page.
func (g Grant) PageSize() int { return g.pageSize }

// Slot is the i-th page in order of position.
func (g Grant) Slot(i int) Slot { return g.slots[i] }
