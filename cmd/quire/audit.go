package main

type auditCmd struct {
	Exposure auditExposureCmd `cmd:"" help:"Find the responses that could contain data of earlier requests, and whose."`
	Verify   auditVerifyCmd   `cmd:"" help:"Check every rule over the record, and whether it is complete. Exit code 1: a rule is broken; 4: something is missing."`
	Report   auditReportCmd   `cmd:"" help:"Write a signed report: JSON and a page that stands by itself."`
}
