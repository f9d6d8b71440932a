package replay

import (
	"fmt"
	"testing"
)

// BenchmarkVerify is audit verify on records in memory: reading, checking hashes and signatures, every rule.
func BenchmarkVerify(b *testing.B) {
	w := newWorld(&testing.T{})
	for i := range 3000 {
		w.play(plan{id: fmt.Sprintf("request %d", i), tenant: "acme", n: 40, max: 8, ok: true, output: 8})
	}
	w.stop()
	for b.Loop() {
		p, err := Read(b.Context(), w, ring{})
		if err != nil {
			b.Fatal(err)
		}
		if v := p.Verify(); len(v.Findings) > 0 {
			b.Fatal(v.Findings[0])
		}
	}
	b.ReportMetric(float64(len(w.items))*float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
