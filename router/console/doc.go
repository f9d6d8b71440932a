// Package console is the router's web page: who has which page of every worker, hand-offs in flight, refusals, latencies, a chat
// box, and a slider over the journal that shows the pools as they were.
//
// It only looks. The page is static and embedded, asks for nothing outside, and gets its figures as JSON and server-sent events:
//
//	GET  /console                 the page; 401 and a form when an admin key is wanted
//	POST /console/sign-in         the key, for a cookie
//	POST /console/sign-out
//	GET  /console/assets/...      scripts and style; they hold no figures
//	GET  /console/api/state       one view
//	GET  /console/api/feed        server-sent events: "series" once, then "state"
//	GET  /console/api/past        how far back the journal can be told; with ?at=N, the pools after its message N
//
// Without an admin key in force only this machine may look, and tenants are keyed short digests; with it they are names.
package console
