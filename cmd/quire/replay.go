package main

type replayCmd struct {
	List   replayListCmd   `cmd:"" help:"List the requests in the journal."`
	Show   replayShowCmd   `cmd:"" help:"Tell what happened to a request, step by step."`
	Step   replayStepCmd   `cmd:"" help:"Walk an attempt record by record, with the whole state of its decode after each."`
	Page   replayPageCmd   `cmd:"" help:"Tell who owned a page of decode's pool, and when."`
	Diff   replayDiffCmd   `cmd:"" help:"Compare two requests."`
	Run    replayRunCmd    `cmd:"" help:"Compute a taped request again and compare every token."`
	Export replayExportCmd `cmd:"" help:"Write the journal into a bundle: one file that every verb here reads."`
}
