# make test checks everything, and installs what that needs where it may; scripts/check STEP runs one
# step of it. make bench compares with the C MPI libraries that are installed. make fuzz runs every fuzz
# target for FUZZTIME. make soak runs SOAK random jobs with faults on each backend (10000, or a part of a
# series: 101-200), and all other long tests: hours, on a machine with nothing else to do.

FUZZTIME ?= 1m
SOAK ?= 10000

.PHONY: all test bench fuzz soak setup clean

all:
	go build -o bin/ ./cmd/...

test:
	@scripts/check

bench:
	@go run ./bench

fuzz:
	@FUZZTIME=$(FUZZTIME) scripts/check fuzz

soak:
	@SOAK=$(SOAK) scripts/check soak

setup:
	@scripts/setup || [ $$? = 3 ]

clean:
	rm -rf bin out
