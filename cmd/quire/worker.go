package main

import "quire/cluster"

// worker are the flags of prefill and decode.
type worker struct {
	role
	busFlags
	modelFlags
	poolFlags
}

func (w worker) options(s streams, kind, id string) (cluster.Options, error) {
	if err := w.checkURLs(); err != nil {
		return cluster.Options{}, err
	}
	o, err := w.role.options(s, w.roleBus())
	if err != nil {
		return o, err
	}
	o.Door.Insecure = w.Insecure
	if o.ID, err = identity(kind, id); err != nil {
		return o, err
	}
	if o.Model, err = w.modelFlags.options(w.KVType); err != nil {
		return o, err
	}
	o.Pool, err = w.poolFlags.options()
	return o, err
}
