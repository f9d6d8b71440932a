package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kong"
	"golang.org/x/term"
)

// Exit codes. Scripts may rely on them.
const (
	exitOK          = 0
	exitFailed      = 1   // the work failed; the reason is on standard error
	exitUsage       = 2   // flags, environment or config file
	exitCut         = 3   // chat: the stream ended without its last frame
	exitIncomplete  = 4   // audit: the record has gaps
	exitInterrupted = 130 // SIGINT
)

// streams are what a process talks to; tests put buffers there.
type streams struct {
	in  io.Reader
	out io.Writer
	err io.Writer
}

// terminal says whether w is one, and colour whether it may be coloured.
func terminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func colour(w io.Writer) bool {
	return terminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// cli is the command line. Every flag is also QUIRE_<FLAG> in the environment and a key of the config file.
type cli struct {
	ConfigFile  string `name:"config" placeholder:"FILE" help:"Read flags from a JSON file; the command line and the environment win over it."`
	PrintConfig bool   `name:"print-config" help:"Print every flag of the verb with its value and where it comes from, and exit."`

	Up       upCmd       `cmd:"" help:"Run everything in this process: bus, router, prefill, decode and the built-in model."`
	Bus      busCmd      `cmd:"" help:"Run a NATS server with JetStream, set up for Quire."`
	Router   routerCmd   `cmd:"" help:"Run the router: the HTTP and NATS doors, admission and placing."`
	Prefill  prefillCmd  `cmd:"" help:"Run a prefill worker."`
	Decode   decodeCmd   `cmd:"" help:"Run a decode worker."`
	Chat     chatCmd     `cmd:"" help:"Talk to a model from this terminal, over HTTP or NATS."`
	Models   modelsCmd   `cmd:"" help:"List what is served, and what quire pull knows."`
	Pull     pullCmd     `cmd:"" help:"Fetch a listed model, resuming and checking what was fetched before."`
	Doctor   doctorCmd   `cmd:"" help:"Check machine, ports, data, bus, model and limits, and say what to do."`
	Replay   replayCmd   `cmd:"" help:"Tell the past from the journal: requests, page owners, differences."`
	Audit    auditCmd    `cmd:"" help:"Answer for the past: exposure, rules, reports."`
	Bench    benchCmd    `cmd:"" help:"Measure a model, a server, a hand-off or the bus, on this machine."`
	Tape     tapeCmd     `cmd:"" help:"The tape: recorded content of chosen tenants."`
	Selftest selftestCmd `cmd:"" help:"Try a running cluster: canaries in other tenants' answers."`
	Version  versionCmd  `cmd:"" help:"Print version, platform and the versions of NATS."`
}

// coded is an error with an exit code.
type coded struct {
	code int
	err  error
}

func (c *coded) Error() string { return c.err.Error() }
func (c *coded) Unwrap() error { return c.err }

// usage marks an error as the caller's: flags, environment or config.
func usage(format string, args ...any) error {
	return &coded{exitUsage, fmt.Errorf(format, args...)}
}

// run is the whole program: it parses args and runs a verb, and returns the exit code.
func run(args []string, s streams) int {
	var c cli
	exited := -1
	parser, err := kong.New(&c, kong.Name("quire"), kong.Writers(s.out, s.err), kong.Exit(func(code int) { exited = code }),
		kong.Description("Prefill and decode run apart; decode runs only on pages proven to be its own. Start with: quire up"),
		kong.UsageOnError(), kong.ConfigureHelp(kong.HelpOptions{Compact: true, FlagsLast: true, WrapUpperBound: 110}),
		kong.PostBuild(nameEnv))
	if err != nil {
		fmt.Fprintf(s.err, "quire: %v\n", err)
		return exitUsage
	}
	file, err := configFile(args, parser)
	if err != nil {
		fmt.Fprintf(s.err, "quire: %v\n", err)
		return exitUsage
	}
	ctx, err := parseArgs(parser, args, file)
	if exited >= 0 { // --help
		return exited
	}
	if err != nil {
		fmt.Fprintf(s.err, "quire: %v\n", err)
		return exitUsage
	}
	src := sourcesOf(ctx, file)
	for _, line := range strayEnv(os.Environ(), parser.Model) {
		fmt.Fprintf(s.err, "quire: %s\n", line)
	}
	if c.PrintConfig {
		printConfig(s.out, ctx, src)
		return exitOK
	}
	ctx.Bind(s, src)
	return report(s.err, ctx.Run())
}

func parseArgs(parser *kong.Kong, args []string, file *configuration) (*kong.Context, error) {
	if file != nil {
		if err := kong.Resolvers(file).Apply(parser); err != nil {
			return nil, err
		}
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	ctx, err := parser.Parse(args)
	var bad *kong.ParseError
	if errors.As(err, &bad) && bad.Context != nil && bad.Context.Command() != "" {
		verb, _, _ := strings.Cut(bad.Context.Command(), " ")
		return nil, fmt.Errorf("%w (quire %s --help lists the flags)", err, verb)
	}
	return ctx, err
}

// report prints an error and chooses the exit code.
func report(w io.Writer, err error) int {
	if err == nil {
		return exitOK
	}
	code := exitFailed
	var c *coded
	if errors.As(err, &c) {
		code = c.code
	}
	if text := err.Error(); text != "" {
		fmt.Fprintf(w, "quire: %s\n", text)
	}
	return code
}
