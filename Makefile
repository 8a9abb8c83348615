# make test runs the checks that everybody runs; it first installs the programs that tests compare with,
# if it may. make test-all runs whole test matrices and the long steps; FUZZTIME, SOAK and SIM set their
# length. scripts/check STEP runs one step.

export FUZZTIME SOAK SIM

.PHONY: all test test-all bench setup clean

all:
	go build -o bin/ ./cmd/... ./sddp/cmd/...

test:
	@scripts/check

test-all:
	@scripts/check all

bench:
	@go run ./bench -page docs/performance.md
	@go run ./bench -programs docs/performance/programs.md

setup:
	@scripts/setup || [ $$? = 3 ]

clean:
	rm -rf bin out
