# Shorthands; the commands behind them work alone too.
.PHONY: build up test ci cluster clean-cluster fmt

build:
	go build -o quire ./cmd/quire

up: build
	./quire up

cluster: build
	./quire up -f Procfile

test:
	go test ./...

ci:
	.ci/run

fmt:
	gofmt -w $$(git ls-files '*.go')

# Forget the local cluster's keys, journal and streams.
clean-cluster:
	rm -rf .quire
