// Command quire serves language models through separate prefill and decode services, every hand-off between them verified.
//
// One binary holds every role and tool; each verb has a file of its own.
package main

import "os"

func main() {
	os.Exit(run(os.Args[1:], streams{in: os.Stdin, out: os.Stdout, err: os.Stderr}))
}
