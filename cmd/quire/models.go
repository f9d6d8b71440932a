package main

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"
)

type modelsCmd struct {
	File    string `arg:"" optional:"" help:"Describes a GGUF file, a Hugging Face directory or a name from quire pull, without a cluster; it is read in full."`
	Models  string `name:"models" placeholder:"DIR" help:"Where quire pull keeps models."`
	Formats bool   `name:"formats" help:"Print what can be loaded."`
	clientFlags
}

// Run lists what a running cluster serves, or describes a file, or says what loads.
func (m *modelsCmd) Run(s streams, src origins) error {
	switch {
	case m.Formats:
		return formats(s)
	case m.File != "":
		return m.describe(s)
	}
	d, err := m.open(src)
	if err != nil {
		return err
	}
	defer d.close()
	ctx, stop := context.WithTimeout(context.Background(), 10*time.Second)
	defer stop()
	list, err := d.models(ctx)
	if err != nil {
		return fmt.Errorf("models: %w", err)
	}
	t := tabwriter.NewWriter(s.out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(t, "MODEL\tLIMIT\tVOCABULARY")
	for _, e := range list {
		fmt.Fprintf(t, "%s\t%d tokens a request\t%d\n", e.ID, e.MaxModelLen, e.Vocab)
	}
	return t.Flush()
}
