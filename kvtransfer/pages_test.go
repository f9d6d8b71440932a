package kvtransfer

import (
	"testing"

	"quire/kvtransfer/page"
)

// A Pages message lists so many owners and runs and no more, and counts what it left out.
func TestPagesAreBounded(t *testing.T) {
	var p Pages
	for range MaxPageOwners + 3 {
		p.Add(PageOwner{Runs: make([]page.Run, 1)})
	}
	if len(p.Owners) != MaxPageOwners || p.Omitted != 3 {
		t.Errorf("%d owners, %d left out", len(p.Owners), p.Omitted)
	}
	p = Pages{}
	p.Add(PageOwner{Runs: make([]page.Run, MaxPageRuns-1)})
	p.Add(PageOwner{Runs: make([]page.Run, 2)})
	p.Add(PageOwner{Runs: make([]page.Run, 1)})
	p.Add(PageOwner{})
	if len(p.Owners) != 3 || p.Omitted != 1 {
		t.Errorf("%d owners, %d left out", len(p.Owners), p.Omitted)
	}
}
