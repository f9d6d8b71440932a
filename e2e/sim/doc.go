// Package sim runs whole clusters in one thread under one seed: routers, prefills, decodes, a bus and clients.
//
// The production cores and loops (router.Loop, prefill.Loop, decode.Loop and what they use) run unchanged on a seeded queue of
// events. Around them stand a simulated bus (streams, work queues, acknowledgements, windows), clocks of different speeds and
// devices whose answer is a function of the exact bytes of the pages, so that one foreign byte changes a token. The network
// drops, delays, repeats and reorders, links are cut, processes crash, stop and come back in a new epoch, the bus restarts,
// devices and the journal fail, and now and then a prefill that holds the keys lies.
//
// A run has three parts: safety (faults, while clients ask and cancel), heal (everything is mended), liveness (what is open must
// end, what is asked now must be served, and nothing may be left). Checkers, one file each (check_*.go), watch all the time.
//
//	go test ./e2e/sim                     some thousands of seeds
//	go test ./e2e/sim -run TestSim -seed 48213     one seed again, exactly
//	go run ./e2e/sim/cmd -for 10m         as many as fit, with a table of what was covered
package sim
