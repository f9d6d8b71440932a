package kvtransfer_test

import (
	"testing"

	"github.com/cockroachdb/datadriven"

	"quire/kvtransfer/script"
)

// Hand-offs that happened, written down by quire replay step --emit, go the same way in this build: every answer and every state.
func TestRecordedHandoffs(t *testing.T) {
	played := 0
	datadriven.Walk(t, "testdata/recorded", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			played++
			out, err := script.Play(d.Input)
			if err != nil {
				d.Fatalf(t, "%v", err)
			}
			return out
		})
	})
	if played == 0 {
		t.Error("no script was played")
	}
}
