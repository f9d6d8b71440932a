package main

import (
	"context"

	"quire/bench"
)

type benchScaleCmd struct {
	benchOut
	Requests []int `name:"requests" placeholder:"N,..." help:"Requests in the system; 10,100,1000,10000 otherwise."`
	Pages    int   `name:"pages" default:"100000" placeholder:"N" help:"Pages of the pool while requests grow."`
	Pools    []int `name:"pools" placeholder:"N,..." help:"Pages of a pool; 1000 to 10000000 otherwise."`
	Waiting  int   `name:"waiting" default:"100" placeholder:"N" help:"Requests in the system while pools grow."`
	Samples  int   `name:"samples" short:"r" default:"200" placeholder:"N" help:"Samples of each figure."`
}

// Run measures what decisions cost as the system grows.
func (c *benchScaleCmd) Run(s streams) error {
	o := bench.DefaultScale()
	o.Pages, o.Waiting, o.Samples = c.Pages, c.Waiting, c.Samples
	if len(c.Requests) > 0 {
		o.Requests = c.Requests
	}
	if len(c.Pools) > 0 {
		o.Pools = c.Pools
	}
	if err := o.Check(); err != nil {
		return usage("%v", err)
	}
	r, err := measured(func(ctx context.Context) (bench.ScaleReport, error) { return bench.RunScale(ctx, o) })
	if err != nil {
		return err
	}
	return c.print(s, r)
}
