// Package replay tells the past from the journal: what happened to a request, who owned a page when, which responses could have
// been exposed to whom, whether the record is complete and whether it keeps every rule.
//
// A Source gives records in the order in which the stream stored them: a live bus, a backup of the stream, or a bundle. Read
// builds a Past from one. Everything else is a question to the Past and changes nothing. Order is that of the stream's
// sequence and of each life's counter; clocks of different processes are never compared. Times of day are the server's.
//
// What comes in is data: it is checked against limits, never executed, and what does not fit is a Finding, not a guess.
package replay
