package device

import (
	"fmt"

	"quire/kvtransfer/page"
)

// CheckView says whether the view is real, of this pool, and lets rows [0, rows) be read.
func (s PoolSpec) CheckView(v page.View, rows int) error {
	switch {
	case !v.Valid():
		return fmt.Errorf("device: view: the zero view is no right to read")
	case v.Pool() != s.Number:
		return fmt.Errorf("device: view: of pool %d, this is pool %d", v.Pool(), s.Number)
	case v.PageSize() != s.PageSize:
		return fmt.Errorf("device: view: page size %d, the pool's is %d", v.PageSize(), s.PageSize)
	case rows > v.Rows():
		return fmt.Errorf("device: view: row %d asked for, %d readable", rows-1, v.Rows())
	}
	for i := range (rows + s.PageSize - 1) / s.PageSize {
		if id := v.Slot(i).Page; int64(id) >= int64(s.Pages) {
			return fmt.Errorf("device: view: page %d of a pool of %d", id, s.Pages)
		}
	}
	return nil
}

// CheckGrant says whether the grant is real, of this pool, and lets rows [from, to) be written.
func (s PoolSpec) CheckGrant(g page.Grant, from, to int) error {
	switch {
	case !g.Valid():
		return fmt.Errorf("device: grant: the zero grant is no right to write")
	case g.Pool() != s.Number:
		return fmt.Errorf("device: grant: of pool %d, this is pool %d", g.Pool(), s.Number)
	case g.PageSize() != s.PageSize:
		return fmt.Errorf("device: grant: page size %d, the pool's is %d", g.PageSize(), s.PageSize)
	case from < g.From() || to > g.To() || from >= to:
		return fmt.Errorf("device: grant: rows %d to %d, granted %d to %d", from, to, g.From(), g.To())
	}
	for i := from / s.PageSize; i <= (to-1)/s.PageSize; i++ {
		if id := g.Slot(i).Page; int64(id) >= int64(s.Pages) {
			return fmt.Errorf("device: grant: page %d of a pool of %d", id, s.Pages)
		}
	}
	return nil
}

// CheckRange says whether the range lies in the pool's layers and names at least one row.
func (s PoolSpec) CheckRange(r Range) error {
	if r.LayerFrom < 0 || r.LayerTo > s.Layers || r.LayerFrom >= r.LayerTo || r.RowFrom < 0 || r.RowFrom >= r.RowTo {
		return fmt.Errorf("device: range: layers %d to %d of %d, rows %d to %d", r.LayerFrom, r.LayerTo, s.Layers, r.RowFrom, r.RowTo)
	}
	return nil
}
